// One event stream for all tabs: it follows every chat that a tab has open and forwards messages to those tabs.
// It runs as a shared worker, because a browser allows six connections per server; without shared workers each tab has
// a connection of its own.

const EVENTS = ["timeline", "turn", "removed", "notice", "words", "changed", "job-failed", "caught-up", "document"];
const DEBOUNCE_MS = 20;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

export class LiveConnection {
  #ports = new Map(); // port → chats it follows
  #positions = new Map(); // chat → id of the last event received
  #source = null;
  #timer = 0;
  #failures = 0;

  follow(port, positions) {
    this.#ports.set(port, Object.keys(positions));
    for (const [chat, after] of Object.entries(positions)) {
      this.#positions.set(chat, Math.min(this.#positions.get(chat) ?? Infinity, after));
    }
    this.#reconnect();
  }

  leave(port) {
    if (!this.#ports.delete(port)) return;
    const followed = new Set([...this.#ports.values()].flat());
    for (const chat of this.#positions.keys()) if (!followed.has(chat)) this.#positions.delete(chat);
    this.#reconnect();
  }

  // Changes of several tabs are combined into one new connection. The old one is closed at once: its late messages would
  // advance the positions, and a tab that is further behind would miss the events in between.
  #reconnect(after = DEBOUNCE_MS) {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), after);
  }

  #connect() {
    if (!this.#positions.size) return;
    const query = [...this.#positions].map(([chat, after]) => `follow=${encodeURIComponent(`${chat}:${after}`)}`);
    const source = (this.#source = new EventSource(`/live?${query.join("&")}`));
    source.onopen = () => {
      if (source !== this.#source) return;
      this.#failures = 0;
      this.#broadcast({ name: "open" });
    };
    source.onerror = () => {
      if (source !== this.#source) return;
      this.#broadcast({ name: "lost" });
      this.#reconnect(RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)]);
    };
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        if (source !== this.#source) return;
        const message = JSON.parse(event.data);
        if (this.#positions.has(message.chat)) this.#positions.set(message.chat, message.at);
        for (const [port, chats] of this.#ports) if (chats.includes(message.chat)) port.postMessage({ name, ...message });
      });
    }
  }

  #broadcast(message) {
    for (const port of this.#ports.keys()) port.postMessage(message);
  }
}

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const connection = new LiveConnection();
  self.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => (data.follow ? connection.follow(port, data.follow) : connection.leave(port));
  };
}
