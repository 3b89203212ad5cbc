// What every page starts.
import { all, on, one } from "./dom.js";
import { startForms } from "./forms.js";
import { startNews } from "./news.js";
import { startPalette } from "./palette.js";
import { startPresence } from "./presence.js";
import { startShortcuts } from "./shortcuts.js";
import { startSurfaces } from "./surfaces.js";
import { announceTrouble } from "./trouble.js";

startSurfaces();
startForms();
startPalette();
startShortcuts();
startNews();
startPresence();
tellTimes(document);
if (one("#chat") && location.hash.startsWith("#t-")) import("./reach.js").then(({ reach }) => reach(location.hash.slice(1)));

on("click", "[data-theme-switch]", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  choose("theme", dark ? "light" : "dark");
});
on("change", "[data-choice]", (_, field) => choose(field.dataset.choice, field.value));
for (const field of all("[data-choice]")) field.value = document.documentElement.dataset[field.dataset.choice] ?? field.value;

// htmx 4 tells of failed requests by this event; the sentence is the server's.
document.addEventListener("htmx:response:error", async (event) => {
  const text = event.detail?.ctx?.text ?? "";
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    told = {};
  }
  const what = told.error ?? "That did not work.";
  announceTrouble(Object.assign(new Error(`${what} ${told.fix ?? "Try again."}`), { what, fix: told.fix ?? "", status: event.detail?.ctx?.response?.status }));
});
document.addEventListener("htmx:after:swap", (event) => tellTimes(event.target instanceof Element ? event.target : document));

function choose(name, value) {
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
  try {
    value ? localStorage.setItem(name, value) : localStorage.removeItem(name);
  } catch {
    // storage is off: it holds for this page
  }
}

// <time datetime=…> in the reader's own zone and words.
export function tellTimes(within) {
  const now = new Date();
  for (const time of all("time[datetime]", within)) {
    const at = new Date(time.dateTime);
    const today = at.toDateString() === now.toDateString();
    time.textContent = at.toLocaleString(undefined, today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
    time.title = at.toLocaleString();
  }
}
