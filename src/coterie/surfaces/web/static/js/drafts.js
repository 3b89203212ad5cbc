// What somebody is writing in a form survives a reload, a closed tab and a lost connection: <form data-draft="bot-new">.
import { all } from "./dom.js";

const key = (form) => `draft:${form.dataset.draft}`;
const told = (form) => [...form.elements].filter((field) => field.name && !["file", "password", "submit"].includes(field.type));

for (const form of all("form[data-draft]")) {
  try {
    const kept = JSON.parse(localStorage.getItem(key(form)) ?? "null");
    for (const field of kept ? told(form) : []) {
      if (!(field.name in kept)) continue;
      if (field.type === "checkbox") field.checked = kept[field.name];
      else field.value = kept[field.name];
    }
    form.addEventListener("input", () => {
      const values = told(form).map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]);
      localStorage.setItem(key(form), JSON.stringify(Object.fromEntries(values)));
    });
    form.addEventListener("form:done", () => localStorage.removeItem(key(form)));
    form.addEventListener("reset", () => localStorage.removeItem(key(form)));
  } catch {
    // storage is off, or holds something else: the form begins as it is
  }
}
