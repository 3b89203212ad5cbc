// Settings: only what was changed is sent, all of it or none; what is wrong is told at its field.
import { all, on, one } from "./dom.js";
import { api, post } from "./api.js";
import { toast } from "./toast.js";
import { announceTrouble } from "./trouble.js";

const READERS = {
  // What is no number goes as it is: the server says what was expected.
  number: (text) => (text.trim() === "" ? null : Number.isFinite(Number(text)) ? Number(text) : text),
  list: (text) => (text.trim() === "" ? null : text.split(",").map((part) => part.trim()).filter(Boolean)),
  text: (text) => (text.trim() === "" ? null : text),
  secret: (text) => text.trim(),
};

const started = new WeakMap(all("[data-setting]").map((field) => [field, value(field)]));

function value(field) {
  return field.type === "checkbox" ? field.checked : field.value;
}

// A form that adds something asks for its name first; its fields are parts of that.
function keyOf(form, field) {
  return form.dataset.new ? `${form.dataset.new}.${one("[data-new-name]", form).value.trim()}${field.name}` : field.name;
}

function changes(form) {
  const told = {};
  for (const field of all("[data-setting]", form)) {
    if (field.disabled || (value(field) === started.get(field) && !("always" in field.dataset))) continue;
    told[keyOf(form, field)] = field.type === "checkbox" ? field.checked : READERS[field.dataset.setting](field.value);
  }
  return told;
}

function complain(form, error) {
  const field = all("[data-setting]", form).find((field) => error.what?.startsWith(keyOf(form, field)));
  if (!field) return announceTrouble(error);
  const note = document.createElement("p");
  note.className = "field-error";
  note.dataset.formError = "";
  note.setAttribute("role", "alert");
  const what = error.what.slice(keyOf(form, field).length).replace(/^:?\s*(\([^)]*\))?\s*/, "").replace(/, unable to parse string as an? \w+/, "");
  note.textContent = `${what.charAt(0).toUpperCase()}${what.slice(1)} ${/^Correct it/.test(error.fix) ? "" : error.fix}`.trim();
  field.setAttribute("aria-invalid", "true");
  field.after(note);
  field.closest("details")?.setAttribute("open", "");
  field.focus();
}

on("submit", "form[data-settings]", async (event, form) => {
  event.preventDefault();
  for (const note of all("[data-form-error]", form)) note.remove();
  for (const field of all("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
  const told = changes(form);
  if (!Object.keys(told).length) return toast("Nothing was changed.", { seconds: 3 });
  const button = one("[type=submit]", form);
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await api("PATCH", "/settings", { changes: told });
    if ("again" in form.dataset) return again();
    one("#restart").hidden = !answer.restart_needed;
    for (const field of all("[data-setting]", form)) {
      if (!(field.name in told)) continue;
      const now = answer.settings.find(({ key }) => key === field.name);
      const from = field.closest(".setting") && one(".setting-origin", field.closest(".setting"));
      started.set(field, value(field));
      if (!now || !from) continue;
      if (now.secret) field.value = "";
      started.set(field, value(field));
      from.textContent = `${now.origin === "default" ? "default" : `from ${now.origin}`}${now.pending ? " · from the next start" : " · counts now"}`;
    }
    const waits = answer.settings.some(({ key, pending }) => pending && key in told);
    toast(waits ? "Saved. It counts from the next start." : "Saved. It counts from now on.", { kind: "success", seconds: 4 });
  } catch (error) {
    complain(form, error);
  } finally {
    button.removeAttribute("aria-busy");
  }
});

// Lists of one's own are set by the server: the page is asked for again, where one was.
function again() {
  sessionStorage.setItem("settings-at", String(one("#main").scrollTop));
  location.reload();
}

const at = sessionStorage.getItem("settings-at");
if (at !== null) {
  sessionStorage.removeItem("settings-at");
  one("#main").scrollTop = Number(at);
  toast("Saved. It counts from now on.", { kind: "success", seconds: 4 });
}

on("click", "[data-remove-setting]", async (_, button) => {
  try {
    await api("PATCH", "/settings", { changes: { [button.dataset.removeSetting]: null } });
    again();
  } catch (error) {
    announceTrouble(error);
  }
});

on("click", "[data-test-model]", async (_, button) => {
  const told = one(".seat-told", button.closest("[data-seat]"));
  button.setAttribute("aria-busy", "true");
  told.replaceChildren(line("faint", "Asking it to say something, and to fill in a form …"));
  try {
    const trial = await post("/models/test", { model: button.dataset.testModel });
    const first = trial.first_token_ms === null ? "–" : `${(trial.first_token_ms / 1000).toFixed(2)} s`;
    const facts = [`First token after ${first}`, `${trial.tokens_per_s.toFixed(1)} tokens/s`, trial.json_ok ? "holds to a form" : `does not hold to a form (${trial.json_failure})`];
    if (trial.memory_mb) facts.push(`${Math.round(trial.memory_mb)} MB`);
    told.replaceChildren(line(trial.json_ok ? "seat-good" : "seat-bad", facts.join(" · ")), line("seat-said", trial.text));
  } catch (error) {
    told.replaceChildren(line("seat-bad", error.message));
  } finally {
    button.removeAttribute("aria-busy");
  }
});

function line(kind, text) {
  const made = document.createElement("p");
  Object.assign(made, { className: kind, textContent: text, dir: "auto" });
  return made;
}

on("click", "[data-backup]", async (_, button) => {
  const told = one("[data-backup-told]");
  button.setAttribute("aria-busy", "true");
  told.textContent = "Copying while everything goes on …";
  try {
    const made = await post("/backups");
    told.textContent = "";
    toast(`Kept as ${made.file}.`, { kind: "success" });
    await htmx.ajax("GET", "/settings/backups", { target: "#backup-list", swap: "innerHTML" });
  } catch (error) {
    told.textContent = "";
    announceTrouble(error);
  } finally {
    button.removeAttribute("aria-busy");
  }
});

// People: a code is shown once, beside what to do with it; whatever changed is read anew.
on("form:done", "#people form", async (event, form) => {
  if ("code" in form.dataset) {
    const { code, minutes, person } = event.detail;
    const words = `Within ${minutes} minutes, once: write /link ${code} (on Matrix !link ${code}) from the account that is to be ${person.name}’s.`;
    one("[data-code-told]").replaceChildren(line("banner", words));
    form.reset();
  }
  await htmx.ajax("GET", "/settings/people", { target: "#people-list", swap: "innerHTML" });
});
