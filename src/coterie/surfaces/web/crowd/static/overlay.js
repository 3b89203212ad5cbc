// The chat alone on a transparent page, for OBS. The address has the token and the options.
import { LiveRoom } from "./live_room.js";
import { lines } from "./chat_line.js";
import { readOptions } from "./overlay_options.js";

const query = new URLSearchParams(location.search);
const options = readOptions(query);
const overlay = document.getElementById("overlay");
const line = lines({ hues: JSON.parse(document.body.dataset.hues) });
const room = document.body.dataset.room;

overlay.style.setProperty("--overlay-size", `${options.size}px`);
overlay.style.setProperty("--overlay-colour", options.colour);
overlay.style.setProperty("--overlay-background", options.background);
overlay.dataset.names = options.names;

function wanted(message) {
  if (options.authors === "people") return message.author.kind !== "persona";
  return options.authors !== "personas" || message.author.kind === "persona";
}

function show(message) {
  const row = line(message);
  row.dataset.id = message.id;
  overlay.append(row);
  if (options.fade) {
    setTimeout(() => row.classList.add("overlay-faded"), options.fade * 1000);
    setTimeout(() => row.remove(), options.fade * 1000 + 1000);
  }
}

const address = `/overlay/${encodeURIComponent(room)}/live?token=${encodeURIComponent(query.get("token") ?? "")}`;
new LiveRoom(
  room,
  (name, data) => {
    if (name === "deleted") overlay.querySelector(`[data-id="${CSS.escape(data.id)}"]`)?.remove();
    if (name !== "frame") return;
    if (data.type === "snapshot") overlay.replaceChildren();
    data.messages.filter(wanted).slice(-options.lines).forEach(show);
    while (overlay.childElementCount > options.lines) overlay.firstElementChild.remove();
  },
  () => {},
  address,
);
