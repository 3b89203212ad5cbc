// Choosing models. Every result and every error is shown where it was asked for; what was saved shows at once.
import { all, on, one } from "../shared/dom.js";
import { api, get, post, put, remove } from "../shared/api.js";
import { plural, t } from "../shared/messages.js";

const POLL_MS = 1000;

function line(kind, text) {
  const made = document.createElement("p");
  Object.assign(made, { className: kind, textContent: text, dir: "auto" });
  return made;
}

const said = (place, kind, text) => place.replaceChildren(line(kind, text));
const sentence = (error) => error.message.replace(/^(key|model): /, "");
const worked = ({ text, first_s }) => t("It works: first word after {seconds} s.", { seconds: first_s.toFixed(1) }) + (text ? ` “${text}”` : "");

// Runs something behind a button, and shows an error at its place.
async function run(button, place, waiting, work) {
  button?.setAttribute("aria-busy", "true");
  if (waiting) said(place, "faint", waiting);
  try {
    return await work();
  } catch (error) {
    said(place, "test-failed", sentence(error));
    return undefined;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

async function showCurrent() {
  const open = one("[data-advanced]")?.open;
  await htmx.ajax("GET", "/settings/models/current", { target: "#models-current", swap: "innerHTML" });
  if (open) one("[data-advanced]").open = true;
  const next = one("[data-continue] span");
  if (next && !one("#models-current .badge-warn")) next.textContent = t("Continue");
  showHealth();
}

async function showHealth() {
  const place = one("[data-health]");
  try {
    const bad = (await get("/models/health")).filter(({ state }) => state !== "ok");
    place?.replaceChildren(...bad.map(({ what, fix }) => line("test-failed", `${what} ${fix}`)));
  } catch {
    place?.replaceChildren();
  }
}

// Servers on this computer

async function findServers() {
  const place = one("[data-servers]");
  let servers;
  try {
    servers = await get("/models/servers");
  } catch (error) {
    return said(place, "test-failed", error.message);
  }
  if (!servers.length) return said(place, "soft", t("No model server was found. Start Ollama, LM Studio, llama.cpp or vLLM, then search again."));
  const list = document.createElement("ul");
  list.className = "item-list";
  list.append(...servers.map(serverItem));
  place.replaceChildren(list);
}

function serverItem(server) {
  const item = document.createElement("li");
  const name = document.createElement("div");
  const strong = document.createElement("strong");
  strong.textContent = server.label;
  name.append(strong, line("faint small", server.base_url));
  item.append(name);
  const result = document.createElement("div");
  result.className = "test-result";
  result.setAttribute("role", "status");
  if (!server.models.length) {
    said(result, "soft", server.provider === "ollama" ? t("{server} runs but has no model. Get one with: ollama pull llama3.2, then search again.", { server: server.label }) : t("{server} runs but has no model. Load one there, then search again.", { server: server.label }));
    item.append(result);
    return item;
  }
  const form = document.createElement("form");
  form.className = "row form";
  form.dataset.server = JSON.stringify({ provider: server.provider, base_url: server.base_url });
  const choice = document.createElement("select");
  Object.assign(choice, { name: "model", ariaLabel: t("Model of {server}", { server: server.label }) });
  choice.append(...server.models.map((model) => new Option(model.context ? t("{model} ({tokens} tokens)", { model: model.name, tokens: model.context.toLocaleString("en") }) : model.name, model.name)));
  const button = document.createElement("button");
  Object.assign(button, { className: "button button-plain button-small", type: "submit", textContent: t("Test and use"), ariaLabel: t("Test and use a model of {server}", { server: server.label }) });
  form.append(choice, button);
  item.append(form, result);
  return item;
}

on("click", "[data-find-servers]", async (_, button) => {
  button.setAttribute("aria-busy", "true");
  await findServers();
  button.removeAttribute("aria-busy");
});

on("submit", "form[data-server]", async (event, form) => {
  event.preventDefault();
  const place = one(".test-result", form.closest("li"));
  const body = { ...JSON.parse(form.dataset.server), model: form.elements.model.value };
  const result = await run(one("[type=submit]", form), place, t("Testing the model; loading it may take a minute …"), () => post("/models/choose", body));
  if (result) {
    said(place, "test-ok", worked(result));
    await showCurrent();
  }
});

// A provider and its key

const connect = one("form[data-connect]");
const choose = one("form[data-choose]");

function connection() {
  const { provider, key, base_url } = connect.elements;
  return { provider: provider.value, key: key.value.trim() || null, base_url: provider.value === "openai-compatible" ? base_url.value.trim() : "" };
}

connect?.elements.provider.addEventListener("change", () => {
  const chosen = connect.elements.provider.selectedOptions[0];
  one("[data-address]", connect).hidden = chosen.value !== "openai-compatible";
  const link = one("[data-keys-link]", connect);
  link.hidden = !chosen.dataset.keysUrl;
  link.href = chosen.dataset.keysUrl || "#";
  one("[data-connect-status]", connect).replaceChildren();
  choose.hidden = true;
});

on("submit", "form[data-connect]", async (event, form) => {
  event.preventDefault();
  const place = one("[data-connect-status]", form);
  const key = form.elements.key;
  key.removeAttribute("aria-invalid");
  choose.hidden = true;
  const models = await run(one("[type=submit]", form), place, t("Asking for the list of models …"), async () => {
    try {
      return await post("/models/list", connection());
    } catch (error) {
      if (/key/.test(error.message)) key.setAttribute("aria-invalid", "true");
      // A server without a list may work all the same: its model can be typed.
      if (connection().provider === "openai-compatible" && !/key/.test(error.message)) showChoice([]);
      throw error;
    }
  });
  if (!models) return;
  said(place, "test-ok", plural("The key works. {count} model to choose from.", "The key works. {count} models to choose from.", models.length));
  if (!connection().key) said(place, "test-ok", plural("{count} model to choose from.", "{count} models to choose from.", models.length));
  showChoice(models);
});

let listed = new Map();

function showChoice(models) {
  listed = new Map(models.map((model) => [model.name, model]));
  one("#models-list").replaceChildren(...models.map((model) => new Option(model.title && model.title !== model.name ? model.title : "", model.name)));
  choose.hidden = false;
  one("[data-choose-status]", choose).replaceChildren();
  const field = choose.elements.model;
  field.value = models.length === 1 ? models[0].name : "";
  field.focus();
  showFacts();
}

function showFacts() {
  const model = listed.get(choose.elements.model.value);
  const facts = [];
  if (model?.context) facts.push(t("{tokens} tokens of context", { tokens: model.context.toLocaleString("en") }));
  if (model?.usd_per_million_in != null) facts.push(t("${in} in, ${out} out per million tokens", { in: model.usd_per_million_in, out: model.usd_per_million_out }));
  if (model?.vision) facts.push(t("sees pictures"));
  one("[data-model-hint]", choose).textContent = facts.join(" · ") || t("Choose from the list, or type a name. A short test request is sent before it is saved.");
}

choose?.elements.model.addEventListener("input", showFacts);

on("submit", "form[data-choose]", async (event, form) => {
  event.preventDefault();
  const place = one("[data-choose-status]", form);
  const body = { ...connection(), model: form.elements.model.value.trim() };
  const result = await run(one("[type=submit]", form), place, t("Testing the model …"), () => post("/models/choose", body));
  if (!result) return;
  connect.elements.key.value = "";
  said(place, "test-ok", `${worked(result)} ${t("Saved and in use.")}`);
  await showCurrent();
});

// Roles, tasks, removal

on("submit", "form[data-role-form]", async (event, form) => {
  event.preventDefault();
  const body = { model: form.elements.model.value.trim(), role: form.dataset.roleForm };
  const place = one(".test-result", form.closest("li"));
  if (await run(one("[type=submit]", form), place, t("Testing the model …"), () => post("/models/use", body))) await showCurrent();
});

on("submit", "form[data-task-form]", async (event, form) => {
  event.preventDefault();
  const { task, model } = form.elements;
  const place = one(".test-result", form);
  const done = await run(one("[type=submit]", form), place, "", async () => (await put(`/models/tasks/${encodeURIComponent(task.value.trim())}`, { model: model.value.trim() }), true));
  if (done) await showCurrent();
});

on("click", "[data-use]", async (_, button) => {
  const place = one(".test-result", button.closest("li"));
  const result = await run(button, place, t("Loading and testing the model …"), () => post("/models/use", { model: button.dataset.use }));
  if (!result) return;
  said(place, "test-ok", worked(result));
  await showCurrent();
});

on("click", "[data-delete]", async (_, button) => {
  if (button.dataset.ask && !button.dataset.asked) {
    // The second click does it.
    const label = one("span", button) ?? button;
    const before = label.textContent;
    button.dataset.asked = "yes";
    label.textContent = t("Click again to confirm");
    button.title = button.dataset.ask;
    setTimeout(() => {
      delete button.dataset.asked;
      label.textContent = before;
    }, 5000);
    return;
  }
  const place = one(".test-result", button.closest("li"));
  if ((await run(button, place, "", async () => (await remove(button.dataset.delete), true))) === true) await showCurrent();
});

// Downloads

const gigabytes = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(1)} MB`);

function timeLeft(seconds) {
  if (seconds === null) return "";
  if (seconds < 90) return t("{seconds} s left", { seconds: Math.ceil(seconds) });
  return seconds < 5400 ? t("{minutes} min left", { minutes: Math.ceil(seconds / 60) }) : t("{hours} h left", { hours: (seconds / 3600).toFixed(1) });
}

let polling = false;
const finished = new Set();

async function showDownloads() {
  let downloads;
  try {
    downloads = await get("/models/downloads");
  } catch {
    return setTimeout(showDownloads, 5 * POLL_MS);
  }
  const place = one("#models-downloads");
  place.replaceChildren(...downloads.filter(({ state }) => state !== "cancelled").map(downloadItem));
  for (const { name, state } of downloads) {
    if (state === "done" && polling && !finished.has(name)) {
      finished.add(name);
      showCurrent();
    }
  }
  polling = downloads.some(({ state }) => ["waiting", "running", "checking"].includes(state));
  if (polling) setTimeout(showDownloads, POLL_MS);
}

function downloadItem(one_) {
  const item = document.createElement("div");
  item.className = "progress";
  item.dataset.downloading = one_.name;
  const label = line("progress-label", "");
  const name = document.createElement("span");
  name.textContent = one_.title;
  const numbers = document.createElement("span");
  numbers.className = "numbers faint";
  numbers.textContent = one_.total ? t("{done} of {most}", { done: gigabytes(one_.done), most: gigabytes(one_.total) }) : gigabytes(one_.done);
  label.append(name, numbers);
  item.append(label);
  if (one_.state === "done") {
    item.append(line("test-ok", t("Downloaded, checked and in use.")));
    return item;
  }
  const bar = document.createElement("progress");
  bar.ariaLabel = t("Download of {title}", { title: one_.title });
  if (one_.total) Object.assign(bar, { max: one_.total, value: one_.done });
  item.append(bar);
  const notes = { waiting: t("Connecting …"), checking: t("Checking the file …"), running: [one_.bytes_per_s ? `${gigabytes(one_.bytes_per_s)}/s` : "", timeLeft(one_.seconds_left)].filter(Boolean).join(" · ") };
  item.append(one_.state === "failed" ? line("test-failed", one_.error) : line("progress-note", notes[one_.state] ?? ""));
  const acts = document.createElement("div");
  acts.className = "row";
  if (one_.state === "failed") acts.append(smallButton(t("Resume"), t("Resume the download of {title}", { title: one_.title }), "download", one_.name));
  acts.append(smallButton(t("Cancel"), t("Cancel the download of {title}", { title: one_.title }), "cancelDownload", one_.name));
  item.append(acts);
  return item;
}

function smallButton(text, label, data, value) {
  const button = document.createElement("button");
  Object.assign(button, { className: "button button-plain button-small", type: "button", textContent: text, ariaLabel: label });
  button.dataset[data] = value;
  return button;
}

async function startDownload(button, place, body) {
  const begun = await run(button, place, "", () => post("/models/downloads", body));
  if (!begun) return;
  place.replaceChildren();
  finished.delete(begun.name);
  polling = true;
  showDownloads();
}

on("click", "[data-download]", (_, button) => {
  const item = button.closest("li");
  startDownload(button, item ? one(".test-result", item) : one("[data-download-status]"), { model: button.dataset.download });
});

on("submit", "form[data-download-url]", (event, form) => {
  event.preventDefault();
  const { model, sha256 } = form.elements;
  startDownload(one("[type=submit]", form), one("[data-download-status]", form), { model: model.value.trim(), sha256: sha256.value.trim() });
});

on("click", "[data-cancel-download]", async (_, button) => {
  button.setAttribute("aria-busy", "true");
  await api("DELETE", `/models/downloads/${encodeURIComponent(button.dataset.cancelDownload)}`).catch(() => {});
  showDownloads();
});

// Embedders

on("submit", "form[data-embedder]", async (event, form) => {
  event.preventDefault();
  const { embedder, provider, model } = form.elements;
  const place = one("[data-embedder-status]", form);
  const body = { embedder: embedder.value, provider: provider.value.trim(), model: model.value.trim() };
  const done = await run(one("[type=submit]", form), place, t("Testing …"), async () => (await put("/models/embedder", body), true));
  if (!done) return;
  said(place, "test-ok", t("Saved. Memories are compared with it as soon as all are read again."));
  showEmbedding(30);
});

async function showEmbedding(times) {
  await htmx.ajax("GET", "/ops/embedding", { target: "#embedder-progress", swap: "innerHTML" });
  if (times > 0) setTimeout(() => showEmbedding(times - 1), 2 * POLL_MS);
}

// Instructions

let prompts = [];
const promptField = one("#f-prompt");

function showPrompt() {
  const prompt = prompts.find(({ name }) => name === promptField.value);
  one("#f-prompt-text").value = prompt.text;
  const fields = prompt.fields.length ? ` ${t("Replaced: {fields}.", { fields: prompt.fields.map((field) => `{${field}}`).join(", ") })}` : "";
  one("#f-prompt-hint").textContent = `${prompt.about}${fields} ${prompt.origin === "built-in" ? t("Built in.") : t("Changed by you.")}`;
  one("[data-reset-prompt]").disabled = prompt.origin === "built-in";
}

one("[data-prompts]")?.addEventListener("toggle", async (event) => {
  if (!event.target.open || prompts.length) return;
  prompts = (await run(null, one("[data-prompt-status]"), "", () => get("/prompts"))) ?? [];
  promptField.replaceChildren(...prompts.map(({ name, label }) => new Option(label, name)));
  if (prompts.length) showPrompt();
});

promptField?.addEventListener("change", () => {
  one("[data-prompt-status]").replaceChildren();
  showPrompt();
});

async function changePrompt(button, message, work) {
  const place = one("[data-prompt-status]");
  const changed = await run(button, place, "", work);
  if (!changed) return;
  prompts = prompts.map((prompt) => (prompt.name === changed.name ? changed : prompt));
  showPrompt();
  said(place, "test-ok", message);
}

on("click", "[data-save-prompt]", (_, button) => changePrompt(button, t("Saved. The next call uses it."), () => put(`/prompts/${promptField.value}`, { text: one("#f-prompt-text").value })));
on("click", "[data-reset-prompt]", (_, button) => changePrompt(button, t("The built-in text is used again."), () => remove(`/prompts/${promptField.value}`)));

if (all("[data-servers]").length) {
  findServers();
  showDownloads();
  showHealth();
}
