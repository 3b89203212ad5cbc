// Shows failed background jobs on any page, each once, and marks the navigation until they are fixed.
import { get } from "./api.js";
import { one } from "./dom.js";
import { toast } from "./toast.js";
import { plural, t } from "./messages.js";

const INTERVAL_MS = 30_000;
const KEY = "last-failed-job";

async function check() {
  if (document.hidden) return;
  const data = await get("/ops/jobs?state=dead&limit=1").catch(() => null);
  if (!data) return; // the status line shows that the server is unreachable
  const count = data.counts.dead ?? 0;
  const link = one('.rail-link[href="/ops"]');
  if (count) link.dataset.failures = count > 9 ? "9+" : String(count);
  else delete link.dataset.failures;
  link.title = count ? plural("Status & costs: {count} failed", "Status & costs: {count} failed", count) : t("Status & costs");
  const newest = data.jobs[0];
  // A chat gets it from its live updates; home and the status page show it themselves.
  if (!newest || one("#chat") || isKnown(newest.id) || ["/", "/ops"].includes(location.pathname)) return;
  toast(`${t("A background job failed.")} ${newest.error ?? ""}`.trim(), { kind: "danger", seconds: 15, action: t("Show"), act: () => location.assign("/ops") });
}

function isKnown(id) {
  try {
    const data = Number(localStorage.getItem(KEY) ?? 0);
    localStorage.setItem(KEY, String(Math.max(data, id)));
    return data >= id;
  } catch {
    return false;
  }
}

export function watchFailedJobs() {
  check();
  setInterval(check, INTERVAL_MS);
  document.addEventListener("visibilitychange", check);
}
