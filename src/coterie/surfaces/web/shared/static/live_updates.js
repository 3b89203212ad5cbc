// Live updates for one tab. A hidden tab disconnects and resumes from its last position when it is visible again.
import { LiveConnection } from "./live_connection.js";

export function listen(start, onMessage) {
  const positions = { ...start };
  const receive = (message) => {
    if (message.at !== undefined) positions[message.chat] = message.at;
    onMessage(message);
  };
  const connection = connect(receive);
  const follow = () => connection.follow(positions);
  const leave = () => connection.leave();
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => event.persisted && follow());
  if (!document.hidden) follow();
  return { follow, leave, positions };
}

function connect(onMessage) {
  if (typeof SharedWorker === "undefined") {
    const own = new LiveConnection();
    const port = { postMessage: onMessage };
    return { follow: (positions) => own.follow(port, { ...positions }), leave: () => own.leave(port) };
  }
  const { port } = new SharedWorker(new URL("./live_connection.js", import.meta.url), { type: "module", name: "coterie" });
  port.onmessage = ({ data }) => onMessage(data);
  return { follow: (positions) => port.postMessage({ follow: { ...positions } }), leave: () => port.postMessage({ leave: true }) };
}
