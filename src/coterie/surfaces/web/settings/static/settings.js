// Settings: sends only changed values, all or none; errors are shown at their field.
import { all, on, one } from "../shared/dom.js";
import { api, post } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { shortcut } from "../shared/shortcuts.js";
import { plural, t } from "../shared/messages.js";

const READERS = {
  // Invalid numbers are sent as text; the server reports what it expects.
  number: (text) => (text.trim() === "" ? null : Number.isFinite(Number(text)) ? Number(text) : text),
  list: (text) => (text.trim() === "" ? null : text.split(",").map((part) => part.trim()).filter(Boolean)),
  text: (text) => (text.trim() === "" ? null : text),
  secret: (text) => text.trim(),
};

const started = new WeakMap(all("[data-setting]").map((field) => [field, value(field)]));

function value(field) {
  return field.type === "checkbox" ? field.checked : field.value;
}

// In a form that adds an entry, keys are prefixed with the entry's name.
function keyOf(form, field) {
  return form.dataset.new ? `${form.dataset.new}.${one("[data-new-name]", form).value.trim()}${field.name}` : field.name;
}

function changes(form) {
  const data = {};
  for (const field of all("[data-setting]", form)) {
    if (field.disabled || (value(field) === started.get(field) && !("always" in field.dataset))) continue;
    data[keyOf(form, field)] = field.type === "checkbox" ? field.checked : READERS[field.dataset.setting](field.value);
  }
  return data;
}

function showFieldError(form, error) {
  const field = all("[data-setting]", form).find((field) => error.what?.startsWith(keyOf(form, field)));
  if (!field) return showError(error);
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
  const data = changes(form);
  if (!Object.keys(data).length) return toast(t("Nothing was changed."), { seconds: 3 });
  const button = one("[type=submit]", form);
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await api("PATCH", "/settings", { changes: data });
    if ("again" in form.dataset) return reload();
    one("#restart").hidden = !answer.restart_needed;
    for (const field of all("[data-setting]", form)) {
      if (!(field.name in data)) continue;
      const now = answer.settings.find(({ key }) => key === field.name);
      const from = field.closest(".setting") && one(".setting-origin", field.closest(".setting"));
      started.set(field, value(field));
      if (!now || !from) continue;
      if (now.secret) field.value = "";
      started.set(field, value(field));
      from.textContent = `${now.origin === "default" ? t("Default") : t("Set in {place}", { place: now.origin })} · ${now.pending ? t("takes effect after a restart") : t("in effect")}`;
    }
    const waits = answer.settings.some(({ key, pending }) => pending && key in data);
    toast(waits ? t("Saved. Takes effect after a restart.") : t("Saved. In effect now."), { kind: "success", seconds: 4 });
  } catch (error) {
    showFieldError(form, error);
  } finally {
    button.removeAttribute("aria-busy");
  }
});

// Lists are rendered by the server: reload and keep the scroll position.
function reload() {
  sessionStorage.setItem("settings-at", String(one("#main").scrollTop));
  location.reload();
}

const at = sessionStorage.getItem("settings-at");
if (at !== null) {
  sessionStorage.removeItem("settings-at");
  one("#main").scrollTop = Number(at);
  toast(t("Saved. In effect now."), { kind: "success", seconds: 4 });
}

on("click", "[data-remove-setting]", async (_, button) => {
  try {
    await api("PATCH", "/settings", { changes: { [button.dataset.removeSetting]: null } });
    reload();
  } catch (error) {
    showError(error);
  }
});

on("click", "[data-test-model]", async (_, button) => {
  const result = one(".test-result", button.closest("[data-role-models]"));
  button.setAttribute("aria-busy", "true");
  result.replaceChildren(line("faint", t("Testing text and structured output …")));
  try {
    const trial = await post("/models/test", { model: button.dataset.testModel });
    const first = trial.first_token_ms === null ? "–" : `${(trial.first_token_ms / 1000).toFixed(2)} s`;
    const facts = [
      t("First token after {time}", { time: first }),
      t("{tokens} tokens/s", { tokens: trial.tokens_per_s.toFixed(1) }),
      trial.json_ok ? t("structured output works") : t("structured output failed ({why})", { why: trial.json_failure }),
    ];
    if (trial.memory_mb) facts.push(`${Math.round(trial.memory_mb)} MB`);
    result.replaceChildren(line(trial.json_ok ? "test-ok" : "test-failed", facts.join(" · ")), line("test-text", trial.text));
  } catch (error) {
    result.replaceChildren(line("test-failed", error.message));
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
  const status = one("[data-backup-status]");
  button.setAttribute("aria-busy", "true");
  status.textContent = t("Backing up …");
  try {
    const backup = await post("/backups");
    status.textContent = "";
    toast(t("Kept as {file}.", { file: backup.file }), { kind: "success" });
    await htmx.ajax("GET", "/settings/backups", { target: "#backup-list", swap: "innerHTML" });
  } catch (error) {
    status.textContent = "";
    showError(error);
  } finally {
    button.removeAttribute("aria-busy");
  }
});

// Search: shows the sections, groups and settings that contain every word.
const searchField = one("#settings-search");
const openedBySearch = new Set();

function search() {
  const words = searchField.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
  const text = (element) => `${element.textContent} ${all("[placeholder]", element).map((field) => field.placeholder).join(" ")} ${element.dataset.key ?? ""}`;
  let found = 0;
  for (const section of all(".settings-body > section")) {
    const whole = fits(one("h2", section).textContent);
    const parts = all(".setting, .models-way, [data-messenger]", section);
    for (const part of parts) part.hidden = !whole && !fits(`${text(part)} ${part.closest("[data-group]")?.querySelector("summary").textContent ?? ""}`);
    for (const group of all("[data-group]", section)) {
      const shown = all(".setting", group).some((part) => !part.hidden);
      group.hidden = !shown;
      if (words.length && shown && !group.open) openedBySearch.add(group);
      if (openedBySearch.has(group)) group.open = words.length > 0 && shown;
    }
    const matching = parts.filter((part) => !part.hidden).length;
    section.hidden = !whole && !matching && !fits(text(section));
    if (!section.hidden && !matching) for (const part of parts) part.hidden = false;
    found += section.hidden ? 0 : matching || 1;
  }
  for (const link of all(".settings-nav a")) link.hidden = one(link.getAttribute("href")).hidden;
  one("#settings-found").textContent = !words.length ? "" : found ? plural("{count} found", "{count} found", found) : t("No setting has these words.");
}

searchField.addEventListener("input", search);
searchField.addEventListener("keydown", (event) => {
  if (event.key === "Enter") all(".settings-body > section :is(input, select, textarea, button)").find((field) => field.checkVisibility() && !field.disabled)?.focus();
  if (event.key === "Escape" && searchField.value) {
    searchField.value = "";
    search();
  }
});
shortcut("/", () => searchField.focus());

// People: shows a new link code or API key once and reloads the list.
on("form:done", "#people form", async (event, form) => {
  if ("apiKey" in form.dataset) {
    const key = document.createElement("code");
    key.textContent = event.detail.key;
    const note = line("banner", `${t("The key for {name}, shown only now:", { name: event.detail.name })} `);
    note.append(key);
    one("[data-code-result]").replaceChildren(note);
    form.reset();
  }
  if ("code" in form.dataset) {
    const { code, minutes, person } = event.detail;
    const words = plural(
      "Within {count} minutes, once: write /link {code} (on Matrix !link {code}) from the account that is to be {name}’s.",
      "Within {count} minutes, once: write /link {code} (on Matrix !link {code}) from the account that is to be {name}’s.",
      minutes,
      { code, name: person.name },
    );
    one("[data-code-result]").replaceChildren(line("banner", words));
    form.reset();
  }
  await htmx.ajax("GET", "/settings/people", { target: "#people-list", swap: "innerHTML" });
});
