// A room as it happens. Comes back by itself, from the last number it was told; a hidden tab lets go.

const PATIENCE_MS = [500, 1000, 2000, 4000, 8000];
const EVENTS = ["frame", "context", "trends", "audit", "state"];

export class Live {
  #room;
  #told;
  #source = null;
  #last = null;
  #failures = 0;
  #soon = 0;

  // `told` is called with an event's name and what it holds; `link` with whether one is up to date: the first frame of
  // a connection brings what was missed, and before it nothing shown is live.
  constructor(room, told, link = () => {}) {
    this.#room = room;
    this.#told = told;
    this.link = link;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    addEventListener("pagehide", () => this.#close());
    this.#open();
  }

  #open() {
    if (this.#source) return;
    const from = this.#last === null ? "" : `?after=${this.#last}`;
    const source = (this.#source = new EventSource(`/crowd/${encodeURIComponent(this.#room)}/live${from}`));
    source.onerror = () => {
      if (source !== this.#source) return;
      this.#close();
      this.link(false);
      clearTimeout(this.#soon);
      this.#soon = setTimeout(() => this.#open(), PATIENCE_MS[Math.min(this.#failures++, PATIENCE_MS.length - 1)]);
    };
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        if (source !== this.#source) return;
        if (event.lastEventId) this.#last = Number(event.lastEventId);
        this.#told(name, JSON.parse(event.data));
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
