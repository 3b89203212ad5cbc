// The texts of scripts in the language of the page. The English text is the key; a page in another language carries a
// table of translations, and one in English none.
import { one } from "./dom.js";

const { messages, forms } = JSON.parse(one("meta[name=messages]")?.content ?? '{"messages": {}, "forms": []}');

// t("Imported “{name}”.", { name }): the text, with values for the names in braces.
export const t = (text, values) => fill([messages[text] ?? text].flat()[0], values);

// plural("{count} turn", "{count} turns", turns): the form for a number, which is the value `count` unless another is given.
export function plural(single, several, count, values) {
  const translated = messages[single];
  const text = Array.isArray(translated) ? translated[forms[formOf(count)]] : count === 1 ? single : several;
  return fill(text ?? single, { count, ...values });
}

// The plural rules of all languages repeat every 100 numbers from 100 on; the table has those below 200.
const formOf = (count) => (count < 200 ? count : 100 + (count % 100));

const fill = (text, values) => (values ? text.replace(/\{(\w+)\}/g, (found, name) => (name in values ? values[name] : found)) : text);
