// Says now and then that somebody is looking, so that the home page knows what happened while nobody was.
import { post } from "./api.js";

const EVERY_MS = 5 * 60_000;

function tell() {
  if (!document.hidden) post("/you/here").catch(() => {}); // the status line says that nobody answers
}

export function startPresence() {
  tell();
  setInterval(tell, EVERY_MS);
  document.addEventListener("visibilitychange", tell);
}
