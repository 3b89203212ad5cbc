// Putting a backup back: asked once, then this page waits until Coterie is there again, and says how far it is. S28
import { on, one } from "./dom.js";
import { post } from "./api.js";
import { announceTrouble } from "./trouble.js";

const EVERY_MS = 400;
const RESTORED = "restored";
const dialog = one("#restore");
const told = one("[data-restore-told]", dialog);
const button = one("[data-restores]", dialog);
let file = "";
let busy = false;

// How it ended is told where it was asked for.
if (sessionStorage.getItem(RESTORED)) {
  sessionStorage.removeItem(RESTORED);
  one("#backups").scrollIntoView();
}

on("click", "[data-restore]", (_, chosen) => {
  file = chosen.dataset.restore;
  one("[data-restore-file]", dialog).textContent = file;
  dialog.showModal();
});

// Closing it would not stop anything.
dialog.addEventListener("cancel", (event) => busy && event.preventDefault());

on("click", "[data-restores]", async () => {
  wait(true);
  try {
    const { run } = await post(`/backups/${encodeURIComponent(file)}/restore`);
    await until(run);
    sessionStorage.setItem(RESTORED, file);
    location.reload();
  } catch (error) {
    wait(false);
    dialog.close();
    announceTrouble(error);
  }
});

function wait(on) {
  busy = on;
  told.hidden = !on;
  for (const each of dialog.querySelectorAll("button")) each.disabled = on;
  button.toggleAttribute("aria-busy", on);
}

// The server that was asked may answer for another moment; the one that has the backup names another run.
async function until(run) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    const answer = await fetch("/health", { headers: { Accept: "application/json" }, cache: "no-store" }).catch(() => null);
    if (answer?.ok && answer.headers.get("Coterie-Run") !== run) return;
    const { restoring } = (answer && !answer.ok && (await answer.json().catch(() => null))) || {};
    show(restoring ?? { what: "Starting anew", done: 0, most: 0 });
  }
}

function show({ what, done, most }) {
  one(".progress-label span", told).textContent = what;
  const bar = one("progress", told);
  if (most) Object.assign(bar, { max: most, value: done });
  else bar.removeAttribute("value");
}
