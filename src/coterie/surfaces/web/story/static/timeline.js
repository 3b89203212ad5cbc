// The timeline: turns in order, each once. Updates keep the scroll position.
import { all, nodes, one } from "../shared/dom.js";
import { plural, t } from "../shared/messages.js";

const NEAR = 96;
const AHEAD = 3000; // older turns are fetched this many pixels before they become visible

// Whether a turn is shown unchanged; `data-late` is set by the page, so it is ignored.
function same(shown, turn) {
  if (!shown) return false;
  if (shown.dataset.late) turn.dataset.late = shown.dataset.late;
  return shown.isEqualNode(turn);
}

export class Timeline {
  constructor(chat, scroller, timeline) {
    Object.assign(this, { chat, scroller, timeline });
    this.before = Number(one("#chat").dataset.before) || null;
    this.unseen = 0;
    this.pill = one("#pill");
    this.loading = false;
    this.pill.addEventListener("click", () => this.toBottom());
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.late = [];
    this.#mark();
    this.toBottom();
    // Turns get their final height when drawn; stay at the bottom until then.
    new ResizeObserver(() => this.stuck && this.toBottom()).observe(timeline);
    new ResizeObserver(() => this.stuck && this.toBottom()).observe(scroller);
    new IntersectionObserver(([seen]) => seen.isIntersecting && this.older(), { root: scroller, rootMargin: `${AHEAD}px 0px 0px` }).observe(one("#older"));
  }

  // The last turn; notices about who joined or left may follow it.
  get last() {
    let last = this.timeline.lastElementChild;
    while (last && !last.matches(".turn")) last = last.previousElementSibling;
    return last;
  }

  get open() {
    return one(".turn[data-state=open]", this.timeline);
  }

  turn({ id, html, state }) {
    const turn = nodes(html).firstElementChild;
    const shown = document.getElementById(`t-${id}`);
    if (shown) {
      if (!same(shown, turn)) this.#keepScroll(() => shown.replaceWith(turn));
      return;
    }
    this.#insert(turn);
    if (!this.stuck && (state !== "open" || turn === this.last)) this.#announce(1);
  }

  notice({ seq, html }) {
    if (!document.getElementById(`n-${seq}`)) this.#insert(nodes(html).firstElementChild);
  }

  removed({ id }) {
    const turn = document.getElementById(`t-${id}`);
    if (turn) this.#keepScroll(() => turn.remove());
  }

  // Inserts a turn or notice at its position.
  #insert(turn) {
    const seq = Number(turn.dataset.seq);
    let after = this.timeline.lastElementChild;
    while (after && Number(after.dataset.seq) > seq) after = after.previousElementSibling;
    // Older than what is loaded: fetched when scrolled to.
    if (!after && this.before) return;
    this.#keepScroll(() => (after ? after.after(turn) : this.timeline.prepend(turn)));
  }

  showWords({ reply, from, blocks }) {
    const turn = document.getElementById(`t-${reply}`);
    if (!turn) return;
    const text = one(".turn-text", turn);
    this.#keepScroll(() => {
      for (const [at, html] of blocks.entries()) {
        const block = text.children[from + at] ?? text.appendChild(Object.assign(document.createElement("div"), { className: "block", dir: "auto" }));
        block.innerHTML = html;
      }
      while (text.children.length > from + blocks.length) text.lastElementChild.remove();
    });
  }

  // After a rewind or undo: replaces the latest turns. Older ones stay if there is no gap between.
  replace({ html, before }) {
    this.#keepScroll(() => {
      const fresh = [...nodes(html).children];
      const first = fresh.length ? Number(fresh[0].dataset.seq) : 0;
      const shown = new Map([...this.timeline.children].map((turn) => [turn.id, turn]));
      const joined = before === null || [...shown.values()].some((turn) => Number(turn.dataset.seq) === before);
      const kept = joined ? [...shown.values()].filter((turn) => Number(turn.dataset.seq) < first) : [];
      const ordered = fresh.map((turn) => (same(shown.get(turn.id), turn) ? shown.get(turn.id) : turn));
      this.timeline.replaceChildren(...(before === null ? [] : kept), ...ordered);
      if (!joined || before === null) this.#setBefore(before);
    });
  }

  async older() {
    if (this.loading || !this.before) return;
    this.loading = true;
    try {
      const before = this.before;
      // The request is for turns before the first one shown, which follows `before`.
      const answer = await fetch(`/chats/${this.chat}/turns?before=${before + 1}`, { headers: { Accept: "text/html" } });
      if (!answer.ok || before !== this.before) return;
      const older = nodes(await answer.text());
      this.#keepScroll(() => this.timeline.prepend(older));
      this.#setBefore(Number(answer.headers.get("X-Before")) || null);
    } finally {
      this.loading = false;
    }
    // Still near the top after a quick scroll: the observer sees no change, so fetch again.
    if (this.before && one("#older").getBoundingClientRect().bottom > this.scroller.getBoundingClientRect().top - AHEAD) this.older();
  }

  // Loads the latest turns again, for a change that live updates do not show.
  async refresh() {
    const answer = await fetch(`/chats/${this.chat}/turns?before=${2 ** 52}`, { headers: { Accept: "text/html" } });
    if (answer.ok) this.replace({ html: await answer.text(), before: Number(answer.headers.get("X-Before")) || null });
  }

  toBottom() {
    this.stuck = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#announce(0);
  }

  // Applies a change and keeps the scroll position, or stays at the bottom.
  #keepScroll(change) {
    const stuck = this.stuck;
    const anchor = stuck ? null : this.#firstVisible();
    const top = anchor?.getBoundingClientRect().top;
    change();
    this.#mark();
    if (stuck) this.scroller.scrollTop = this.scroller.scrollHeight;
    else if (anchor?.isConnected) {
      const moved = anchor.getBoundingClientRect().top - top;
      if (Math.abs(moved) > 0.5) this.scroller.scrollTop += moved;
    }
    this.#scrolled(); // a short timeline is fully visible
  }

  // Only the last reply can be regenerated, and only the last message edited.
  #mark() {
    let before = this.last?.previousElementSibling;
    while (before && !before.matches(".turn")) before = before.previousElementSibling;
    const late = [this.last, before].filter(Boolean);
    for (const turn of this.late) if (!late.includes(turn)) delete turn.dataset.late;
    late.forEach((turn, at) => (turn.dataset.late = at ? "before" : "last"));
    this.late = late;
  }

  // The turn at the top of the window; elementFromPoint costs the same for any number of turns.
  #firstVisible() {
    const { left, top, width } = this.scroller.getBoundingClientRect();
    for (const down of [8, 40, 80]) {
      const turn = document.elementFromPoint(left + width / 2, top + down)?.closest(".turn");
      if (turn) return turn;
    }
    return this.timeline.firstElementChild;
  }

  #setBefore(before) {
    this.before = before;
    one("#older").hidden = !before;
    one("#start").hidden = Boolean(before);
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.stuck = scrollHeight - scrollTop - clientHeight < NEAR;
    if (this.stuck) this.#announce(0);
    this.pill.hidden = this.stuck;
  }

  #announce(more) {
    this.unseen = more ? this.unseen + more : 0;
    one("span", this.pill).textContent = this.unseen ? plural("{count} new", "{count} new", this.unseen) : t("Latest");
    this.pill.hidden = this.stuck;
  }
}
