// Keeps unsaved form values in the browser: <form data-draft="new-character">.
import { all } from "./dom.js";

const key = (form) => `draft:${form.dataset.draft}`;
const data = (form) => [...form.elements].filter((field) => field.name && !["file", "password", "submit"].includes(field.type));

for (const form of all("form[data-draft]")) {
  try {
    const kept = JSON.parse(localStorage.getItem(key(form)) ?? "null");
    for (const field of kept ? data(form) : []) {
      if (!(field.name in kept)) continue;
      if (field.type === "checkbox") field.checked = kept[field.name];
      else field.value = kept[field.name];
    }
    form.addEventListener("input", () => {
      const values = data(form).map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]);
      localStorage.setItem(key(form), JSON.stringify(Object.fromEntries(values)));
    });
    form.addEventListener("form:done", () => localStorage.removeItem(key(form)));
    form.addEventListener("reset", () => localStorage.removeItem(key(form)));
  } catch {
    // no storage or unreadable values: the form stays as it is
  }
}
