// Importing from SillyTavern: a preview of a folder, the start, and the progress of an import.
import { all, on, one } from "../shared/dom.js";
import { get, post } from "../shared/api.js";
import { showError } from "../shared/errors.js";
import { plural, t } from "../shared/messages.js";

const choose = one("#import-folder");
const preview = one("#import-preview");
let folder = "";

async function show(wanted) {
  let answer;
  try {
    answer = await post("/imports/preview", { folder: wanted });
  } catch (error) {
    return showError(error);
  }
  folder = wanted;
  one("[data-part=folder]", preview).textContent = answer.folder;
  one("[data-part=kinds]", preview).replaceChildren(...answer.kinds.map(kindItem));
  one("[data-part=left]", preview).replaceChildren(...answer.left.map(leftItem));
  one("details", preview).hidden = !answer.left.length;
  preview.hidden = false;
  one("[type=submit]", preview).focus();
}

function kindItem({ kind, label, items, before }) {
  const box = Object.assign(document.createElement("input"), { type: "checkbox", name: "kinds", value: kind, checked: true });
  const line = document.createElement("label");
  const known = before ? ` (${plural("{count} imported before", "{count} imported before", before)})` : "";
  line.append(box, ` ${label}: ${items.toLocaleString()}${known}`);
  const item = document.createElement("li");
  item.append(line);
  return item;
}

function leftItem({ path, why }) {
  const item = document.createElement("li");
  item.textContent = `${path}: ${why}`;
  return item;
}

async function start() {
  const kinds = all("[name=kinds]:checked", preview).map((box) => box.value);
  try {
    const run = await post("/imports", { folder, kinds: [...kinds, "other"] });
    location.assign(`/imports/${run.id}`);
  } catch (error) {
    showError(error);
  }
}

if (choose) {
  on("click", "[data-folder]", (_, button) => show(button.dataset.folder));
  choose.addEventListener("submit", (event) => {
    event.preventDefault();
    show(choose.elements.folder.value.trim());
  });
  preview.addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
}

const progress = one("#import-progress");
if (progress) {
  const timer = setInterval(async () => {
    try {
      const run = await get(`/imports/${progress.dataset.import}`);
      one("progress", progress).value = run.done;
      one(".numbers", progress).textContent = t("{done} of {most}", { done: run.done.toLocaleString(), most: run.items.toLocaleString() });
      if (run.ended) location.reload();
    } catch (error) {
      if (error.status) clearInterval(timer);
    }
  }, 1000);
}
