// Uploads files that are dropped on the page or picked, one after the other, and lists the results.
import { all, one } from "./dom.js";
import { api } from "./api.js";
import { plural, t } from "./messages.js";

const fill = (address, answer) =>
  address.replace(/\{([\w.]+)\}/g, (_, path) => encodeURIComponent(path.split(".").reduce((at, name) => at[name], answer)));

function tell(place, kind, title, lines) {
  const item = document.createElement("li");
  item.className = `drop-${kind}`;
  const name = document.createElement("strong");
  name.textContent = title;
  item.append(name);
  for (const line of lines) {
    const small = document.createElement("small");
    small.textContent = line;
    item.append(small);
  }
  one(".drop-results", place).append(item);
  return item;
}

async function take(place, files) {
  const bar = one(".drop-progress", place);
  one(".drop-results", place).replaceChildren();
  Object.assign(bar, { hidden: false, max: files.length, value: 0 });
  if (files.length === 1) bar.removeAttribute("value"); // the duration of one upload is unknown: indeterminate
  let only = null;
  let odd = false;
  for (const file of files) {
    try {
      const to = new URL(place.dataset.drop, location.origin);
      to.searchParams.set("name", file.name);
      const answer = await api("POST", `${to.pathname}${to.search}`, file);
      only = answer;
      const data = "added" in answer ? plural("{count} memory was new.", "{count} memories were new.", answer.added) : t("Imported.");
      const item = tell(place, "good", file.name, [data, ...(answer.notes ?? [])]);
      odd ||= Boolean(answer.notes?.length);
      if (place.dataset.then) {
        const link = document.createElement("a");
        Object.assign(link, { href: fill(place.dataset.then, answer), textContent: t("Continue") });
        item.append(link);
      }
    } catch (error) {
      odd = true;
      tell(place, "bad", file.name, [error.what ?? String(error), error.fix ?? ""].filter(Boolean));
    }
    if (files.length > 1) bar.value += 1;
  }
  bar.hidden = true;
  place.dispatchEvent(new CustomEvent("drop:done", { bubbles: true }));
  if (files.length === 1 && !odd && place.dataset.then) location.assign(fill(place.dataset.then, only));
}

for (const place of all("[data-drop]")) {
  const input = one("input", place);
  input.addEventListener("change", () => {
    const files = [...input.files];
    input.value = "";
    if (files.length) take(place, files);
  });
}

// The whole page accepts dropped files.
const first = one("[data-drop]");
let depth = 0;
const files = (event) => event.dataTransfer?.types.includes("Files");
const mark = (on) => (on ? (first.dataset.dragging = "") : delete first.dataset.dragging);
addEventListener("dragenter", (event) => first && files(event) && mark(++depth > 0));
addEventListener("dragleave", (event) => first && files(event) && mark(--depth > 0));
addEventListener("dragover", (event) => first && files(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!first || !files(event)) return;
  event.preventDefault();
  depth = 0;
  mark(false);
  take(event.target.closest?.("[data-drop]") ?? first, [...event.dataTransfer.files]);
});
