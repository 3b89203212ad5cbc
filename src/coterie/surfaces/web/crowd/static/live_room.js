// Live events of a room. Reconnects from the last message number; a hidden tab disconnects.

const RETRY_MS = [500, 1000, 2000, 4000, 8000];
const EVENTS = ["frame", "deleted", "context", "trends", "audit", "state"];

export class LiveRoom {
  #address;
  #onEvent;
  #source = null;
  #last = null;
  #failures = 0;
  #soon = 0;

  // `onEvent` gets an event's name and data; `link` whether the page is up to date: the first frame of a connection
  // holds what was missed.
  constructor(room, onEvent, link = () => {}, address = `/crowd/${encodeURIComponent(room)}/live`) {
    this.#address = address;
    this.#onEvent = onEvent;
    this.link = link;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    addEventListener("pagehide", () => this.#close());
    this.#open();
  }

  #open() {
    if (this.#source) return;
    const from = this.#last === null ? "" : `${this.#address.includes("?") ? "&" : "?"}after=${this.#last}`;
    const source = (this.#source = new EventSource(this.#address + from));
    source.onerror = () => {
      if (source !== this.#source) return;
      this.#close();
      this.link(false);
      clearTimeout(this.#soon);
      this.#soon = setTimeout(() => this.#open(), RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)]);
    };
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        if (source !== this.#source) return;
        if (event.lastEventId) this.#last = Number(event.lastEventId);
        this.#onEvent(name, JSON.parse(event.data));
      });
    }
    source.addEventListener("frame", () => {
      this.#failures = 0;
      this.link(true);
    }, { once: true });
  }

  #close() {
    this.#source?.close();
    this.#source = null;
  }
}
