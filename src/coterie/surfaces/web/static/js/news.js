// What went wrong in the background is told on whatever page is open, once, and marked on the rail until it is mended.
import { get } from "./api.js";
import { one } from "./dom.js";
import { toast } from "./toast.js";

const EVERY_MS = 30_000;
const KEY = "told-of-job";

async function look() {
  if (document.hidden) return;
  const told = await get("/ops/jobs?state=dead&limit=1").catch(() => null);
  if (!told) return; // the status line says that nobody answers
  const count = told.counts.dead ?? 0;
  const link = one('.rail-link[href="/ops"]');
  if (count) link.dataset.trouble = count > 9 ? "9+" : String(count);
  else delete link.dataset.trouble;
  link.title = count ? `Workshop: ${count} given up` : "Workshop";
  const newest = told.jobs[0];
  // A chat is told by its own connection, at once; home and the workshop say it themselves.
  if (!newest || one("#chat") || already(newest.id) || ["/", "/ops"].includes(location.pathname)) return;
  toast(`Something in the background was given up. ${newest.error ?? ""}`.trim(), { kind: "danger", seconds: 15, action: "Look", act: () => location.assign("/ops") });
}

function already(id) {
  try {
    const told = Number(localStorage.getItem(KEY) ?? 0);
    localStorage.setItem(KEY, String(Math.max(told, id)));
    return told >= id;
  } catch {
    return false;
  }
}

export function startNews() {
  look();
  setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
}
