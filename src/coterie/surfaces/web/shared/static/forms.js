// Forms that send JSON to the API: <form data-api="PUT /you" data-then="/chats" data-said="Saved.">.
// Fields go as JSON under their names; a name with dots is nested ("place.name"); data-as on a field says what it is:
// "number", "bool", "list" (commas), "rows" (one per line), "lines" (separated by `---`), "json". Errors are shown at their field.
// `data-then` may hold {id} and other fields of the response. Events: `form:done`, `form:failed`.
import { all, on, one } from "./dom.js";
import { api } from "./api.js";
import { toast } from "./toast.js";
import { showError } from "./errors.js";

const READERS = {
  number: (text) => (text.trim() === "" ? null : Number(text)),
  bool: (text) => text === "true" || text === "on",
  list: (text) => text.split(",").map((part) => part.trim()).filter(Boolean),
  rows: (text) => text.split("\n").map((part) => part.trim()).filter(Boolean),
  lines: (text) => text.split(/^\s*---\s*$/m).map((part) => part.trim()).filter(Boolean),
  json: (text) => JSON.parse(text),
};

export function read(form) {
  const data = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "radio" && !field.checked)) continue;
    const raw = field.type === "checkbox" ? field.checked : field.value;
    const value = typeof raw === "string" && field.dataset.as ? READERS[field.dataset.as](raw) : raw;
    if (raw === "" && "skipEmpty" in field.dataset) continue;
    const parts = field.name.split(".");
    const last = parts.pop();
    let at = data;
    for (const part of parts) at = at[part] ??= {};
    at[last] = value;
  }
  return data;
}

export async function send(form) {
  const [method, path] = form.dataset.api.split(" ");
  const buttons = all("[type=submit], button:not([type])", form);
  for (const field of all("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
  one("[data-form-error]", form)?.remove();
  buttons.forEach((button) => button.setAttribute("aria-busy", "true"));
  try {
    const answer = await api(method, path, method === "DELETE" ? undefined : read(form));
    form.dispatchEvent(new CustomEvent("form:done", { bubbles: true, detail: answer }));
    if (form.dataset.then) location.assign(fill(form.dataset.then, answer));
    else if (form.dataset.said) toast(form.dataset.said, { kind: "success", seconds: 3 });
    return answer;
  } catch (error) {
    show(form, error);
    form.dispatchEvent(new CustomEvent("form:failed", { bubbles: true, detail: error }));
    return null;
  } finally {
    buttons.forEach((button) => button.removeAttribute("aria-busy"));
  }
}

const fill = (address, answer) => address.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer[name]));

function show(form, error) {
  const name = /^([\w.]+): /.exec(error.what ?? "")?.[1];
  const field = name && form.elements.namedItem(name);
  if (!field) return showError(error);
  const note = document.createElement("p");
  Object.assign(note, { className: "field-error", textContent: error.what.slice(name.length + 2) });
  note.dataset.formError = "";
  note.setAttribute("role", "alert");
  field.setAttribute("aria-invalid", "true");
  field.after(note);
  field.focus();
}

export function startForms() {
  on("submit", "form[data-api]", (event, form) => {
    event.preventDefault();
    send(form);
  });
  on("keydown", "form[data-api] textarea", (event, area) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) area.form.requestSubmit();
  });
}
