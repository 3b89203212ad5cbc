// Keyboard shortcuts. Single letters work outside of text fields; pages add their own with `shortcut`.
import { isMac, one, typing } from "./dom.js";
import { openDialog } from "./dialogs.js";

const keys = new Map();
let going = 0;

export function shortcut(key, act) {
  keys.set(key, act);
}

export function startShortcuts() {
  shortcut("?", () => openDialog(one("#shortcuts")));
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (isMac ? event.metaKey : event.ctrlKey)) {
      event.preventDefault();
      return openDialog(one("#palette"));
    }
    if (typing(event.target) || event.metaKey || event.ctrlKey || event.altKey || one("dialog[open]")) return;
    if (event.key === "g") return (going = event.timeStamp);
    const place = going && event.timeStamp - going < 1200 && /^\w$/.test(event.key) && one(`.rail [data-key="${event.key}"]`);
    if (place) return location.assign(place.href);
    going = 0;
    const act = keys.get(event.key);
    if (act) {
      event.preventDefault();
      act(event);
    }
  });
}
