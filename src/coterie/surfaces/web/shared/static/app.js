// Code for every page.
import { all, on, one } from "./dom.js";
import { startForms } from "./forms.js";
import { watchFailedJobs } from "./failed_jobs.js";
import { startPalette } from "./palette.js";
import { reportVisits } from "./visits.js";
import { startShortcuts } from "./shortcuts.js";
import { startDialogs } from "./dialogs.js";
import { showError } from "./errors.js";
import { t } from "./messages.js";

startDialogs();
startForms();
startShortcuts();
// A guest's page has no navigation, and the guest may ask for nothing but the document.
if (!("guest" in document.body.dataset)) {
  startPalette();
  watchFailedJobs();
  reportVisits();
}
formatTimes(document);
if (one("#chat") && location.hash.startsWith("#t-")) import("../story/scroll_to_turn.js").then(({ scrollToTurn }) => scrollToTurn(location.hash.slice(1)));

on("click", "[data-theme-switch]", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  choose("theme", dark ? "light" : "dark");
});
on("change", "[data-choice]", (_, field) => choose(field.dataset.choice, field.value));
for (const field of all("[data-choice]")) field.value = document.documentElement.dataset[field.dataset.choice] ?? field.value;

// htmx 4 reports failed requests by this event; the text is the server's.
document.addEventListener("htmx:response:error", async (event) => {
  const text = event.detail?.ctx?.text ?? "";
  let data = {};
  try {
    data = JSON.parse(text);
  } catch {
    data = {};
  }
  const what = data.error ?? t("That did not work.");
  showError(Object.assign(new Error(`${what} ${data.fix ?? t("Try again.")}`), { what, fix: data.fix ?? "", status: event.detail?.ctx?.response?.status }));
});
document.addEventListener("htmx:after:swap", (event) => formatTimes(event.target instanceof Element ? event.target : document));

function choose(name, value) {
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
  try {
    value ? localStorage.setItem(name, value) : localStorage.removeItem(name);
  } catch {
    // no storage: the choice lasts for this page
  }
}

// <time datetime=…> in the reader's time zone and locale.
export function formatTimes(within) {
  const now = new Date();
  for (const time of all("time[datetime]", within)) {
    const at = new Date(time.dateTime);
    const today = at.toDateString() === now.toDateString();
    time.textContent = at.toLocaleString(undefined, today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
    time.title = at.toLocaleString();
  }
}
