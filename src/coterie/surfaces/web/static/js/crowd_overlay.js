// The chat alone, on nothing: for a broadcast. Old lines fade and go.
import { Live } from "./crowd_live.js";
import { lines } from "./crowd_line.js";

const MOST = 40;
const overlay = document.getElementById("overlay");
const line = lines({ hues: JSON.parse(document.body.dataset.hues) });

new Live(document.body.dataset.room, (name, told) => {
  if (name !== "frame") return;
  const shown = told.type === "snapshot" ? told.messages.slice(-12) : told.messages;
  if (told.type === "snapshot") overlay.replaceChildren();
  overlay.append(...shown.map(line));
  while (overlay.childElementCount > MOST) overlay.firstElementChild.remove();
});
