// Restores a backup: after confirmation the page shows the progress and reloads when Coterie is back.
import { on, one } from "../shared/dom.js";
import { post } from "../shared/api.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const INTERVAL_MS = 400;
const RESTORED = "restored";
const dialog = one("#restore");
const status = one("[data-restore-status]", dialog);
const button = one("[data-restores]", dialog);
let file = "";
let busy = false;

// After a restore, scroll to its result.
if (sessionStorage.getItem(RESTORED)) {
  sessionStorage.removeItem(RESTORED);
  one("#backups").scrollIntoView();
}

on("click", "[data-restore]", (_, chosen) => {
  file = chosen.dataset.restore;
  one("[data-restore-file]", dialog).textContent = file;
  dialog.showModal();
});

// A running restore cannot be cancelled.
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
    showError(error);
  }
});

function wait(on) {
  busy = on;
  status.hidden = !on;
  for (const each of dialog.querySelectorAll("button")) each.disabled = on;
  button.toggleAttribute("aria-busy", on);
}

// The old server may answer for a moment; the restarted one reports another run.
async function until(run) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    const answer = await fetch("/health", { headers: { Accept: "application/json" }, cache: "no-store" }).catch(() => null);
    if (answer?.ok && answer.headers.get("Coterie-Run") !== run) return;
    const { restoring } = (answer && !answer.ok && (await answer.json().catch(() => null))) || {};
    show(restoring ?? { what: t("Restarting"), done: 0, most: 0 });
  }
}

function show({ what, done, most }) {
  one(".progress-label span", status).textContent = what;
  const bar = one("progress", status);
  if (most) Object.assign(bar, { max: most, value: done });
  else bar.removeAttribute("value");
}
