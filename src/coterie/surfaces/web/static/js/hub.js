// One connection for every tab: it follows each chat that some tab has open, and hands what it hears to those tabs.
// As a shared worker it serves all tabs of a browser (which allows six connections to a server, not twenty); where there
// are no shared workers, each tab has a hub of its own.

const EVENTS = ["timeline", "turn", "words", "aside", "trouble", "caught-up", "draft"];
const SOON_MS = 20;
const PATIENCE_MS = [500, 1000, 2000, 4000, 8000];

export class Hub {
  #members = new Map(); // port → chats it follows
  #told = new Map(); // chat → the event up to which it is known
  #source = null;
  #soon = 0;
  #failures = 0;

  follow(port, places) {
    this.#members.set(port, Object.keys(places));
    for (const [chat, after] of Object.entries(places)) {
      this.#told.set(chat, Math.min(this.#told.get(chat) ?? Infinity, after));
    }
    this.#reconnect();
  }

  leave(port) {
    if (!this.#members.delete(port)) return;
    const wanted = new Set([...this.#members.values()].flat());
    for (const chat of this.#told.keys()) if (!wanted.has(chat)) this.#told.delete(chat);
    this.#reconnect();
  }

  // Several tabs may come and go at once: one new connection for all of them. The old one ends here and now: what it
  // still told would count as known, and whoever comes back from further behind would miss what lies between.
  #reconnect(after = SOON_MS) {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#soon);
    this.#soon = setTimeout(() => this.#connect(), after);
  }

  #connect() {
    if (!this.#told.size) return;
    const places = [...this.#told].map(([chat, after]) => `follow=${encodeURIComponent(`${chat}:${after}`)}`);
    const source = (this.#source = new EventSource(`/live?${places.join("&")}`));
    source.onopen = () => {
      if (source !== this.#source) return;
      this.#failures = 0;
      this.#tellAll({ name: "open" });
    };
    source.onerror = () => {
      if (source !== this.#source) return;
      this.#tellAll({ name: "lost" });
      this.#reconnect(PATIENCE_MS[Math.min(this.#failures++, PATIENCE_MS.length - 1)]);
    };
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        if (source !== this.#source) return;
        const told = JSON.parse(event.data);
        if (this.#told.has(told.chat)) this.#told.set(told.chat, told.at);
        for (const [port, chats] of this.#members) if (chats.includes(told.chat)) port.postMessage({ name, ...told });
      });
    }
  }

  #tellAll(message) {
    for (const port of this.#members.keys()) port.postMessage(message);
  }
}

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const hub = new Hub();
  self.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => (data.follow ? hub.follow(port, data.follow) : hub.leave(port));
  };
}
