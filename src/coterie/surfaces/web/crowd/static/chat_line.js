// One line of a crowd's chat. Whatever people and models wrote becomes text nodes, never markup.

import { t } from "../shared/messages.js";

const HUES = 24;

export function lines({ hues = {}, emotes = [], you = "" } = {}) {
  const known = new Set(emotes);
  const hueOf = (name) => hues[name] ?? `hue-${[...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) >>> 0, 7) % HUES}`;
  const me = you.toLowerCase();

  return function line(message) {
    const row = document.createElement("p");
    row.className = "line";
    row.dataset.number = message.number;
    if (message.author.kind === "system") row.classList.add("line-system");
    if (message.reply_to) {
      const sign = part("line-reply", "↳");
      sign.setAttribute("aria-label", t("answers"));
      row.append(sign);
    }
    for (const badge of message.author.badges ?? []) row.append(part("line-badge", badge));
    const name = part(`line-who ${hueOf(message.author.name)}`, message.author.name);
    if (message.author.kind === "human") name.classList.add("line-human");
    row.append(name);
    if ((message.mentions ?? []).some((mentioned) => mentioned.toLowerCase() === me) && me) row.classList.add("line-mine");
    const text = part("line-text", "");
    text.dir = "auto";
    for (const word of message.text.split(/(\s+)/)) {
      if (known.has(word)) text.append(part("line-emote", word));
      else if (/^@[\w.-]*\w/.test(word)) text.append(part("line-mention", word));
      else text.append(word);
    }
    row.append(text);
    return row;
  };
}

function part(kind, text) {
  const span = document.createElement("span");
  span.className = kind;
  span.textContent = text;
  return span;
}
