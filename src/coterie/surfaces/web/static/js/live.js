// A tab's ear: what it is told of the chats it follows. A hidden tab lets go, and goes on from where it was when seen again.
import { Hub } from "./hub.js";

export function listen(places, hear) {
  const known = { ...places };
  const heard = (message) => {
    if (message.at !== undefined) known[message.chat] = message.at;
    hear(message);
  };
  const line = open(heard);
  const follow = () => line.follow(known);
  const leave = () => line.leave();
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => event.persisted && follow());
  if (!document.hidden) follow();
  return { follow, leave, known };
}

function open(hear) {
  if (typeof SharedWorker === "undefined") {
    const hub = new Hub();
    const port = { postMessage: hear };
    return { follow: (places) => hub.follow(port, { ...places }), leave: () => hub.leave(port) };
  }
  const { port } = new SharedWorker(new URL("./hub.js", import.meta.url), { type: "module", name: "coterie" });
  port.onmessage = ({ data }) => hear(data);
  return { follow: (places) => port.postMessage({ follow: { ...places } }), leave: () => port.postMessage({ leave: true }) };
}
