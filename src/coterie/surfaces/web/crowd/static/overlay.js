// The chat alone on a transparent page, for OBS. Old lines fade out and are removed.
import { LiveRoom } from "./live_room.js";
import { lines } from "./chat_line.js";

const MOST = 40;
const overlay = document.getElementById("overlay");
const line = lines({ hues: JSON.parse(document.body.dataset.hues) });

new LiveRoom(document.body.dataset.room, (name, data) => {
  if (name !== "frame") return;
  const shown = data.type === "snapshot" ? data.messages.slice(-12) : data.messages;
  if (data.type === "snapshot") overlay.replaceChildren();
  overlay.append(...shown.map(line));
  while (overlay.childElementCount > MOST) overlay.firstElementChild.remove();
});
