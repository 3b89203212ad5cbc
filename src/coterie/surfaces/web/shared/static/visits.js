// Reports visits, so that the home page can list what happened since the last one.
import { post } from "./api.js";

const INTERVAL_MS = 5 * 60_000;

function report() {
  if (!document.hidden) post("/you/here").catch(() => {}); // the status line shows that the server is unreachable
}

export function reportVisits() {
  report();
  setInterval(report, INTERVAL_MS);
  document.addEventListener("visibilitychange", report);
}
