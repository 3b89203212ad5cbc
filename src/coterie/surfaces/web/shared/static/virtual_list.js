// A list that renders only the rows near the viewport. Heights are estimated until a row was rendered; their sums are
// kept in a Fenwick tree, so that finding a row takes logarithmic time. The list stays at its end if it was there, and
// visible rows do not move otherwise.

const GUESS = 26;
const BEYOND = 400;
const MOST = 100_000;

export class VirtualList {
  #scroll;
  #space;
  #window;
  #draw;
  #items = [];
  #sums = new Float64Array(1);
  #heights = new Float64Array(0);
  #rows = new Map();
  #asked = false;
  #sticks = true;
  onstick = () => {};

  constructor(scroll, space, window_, draw) {
    this.#scroll = scroll;
    this.#space = space;
    this.#window = window_;
    this.#draw = draw;
    scroll.addEventListener("scroll", () => {
      const sticks = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 24;
      if (sticks !== this.#sticks) this.onstick((this.#sticks = sticks));
      this.#ask();
    }, { passive: true });
    new ResizeObserver(() => this.#forgetHeights()).observe(scroll);
    this.#grow(1024);
  }

  get length() {
    return this.#items.length;
  }

  get sticks() {
    return this.#sticks;
  }

  at(index) {
    return this.#items[index];
  }

  replace(items) {
    this.#items = [];
    for (const row of this.#rows.values()) row.remove();
    this.#rows.clear();
    this.#sums.fill(0);
    this.append(items);
  }

  append(items) {
    for (const item of items) {
      const index = this.#items.push(item) - 1;
      if (index >= this.#heights.length) this.#grow(this.#heights.length * 2);
      this.#heights[index] = 0;
      this.#measure(index, GUESS);
    }
    if (this.#items.length > MOST) this.#drop(this.#items.length - MOST * 0.9);
    this.#ask();
  }

  // Adds older rows at the start and keeps the visible rows in place.
  prepend(items) {
    const before = this.#scroll.scrollHeight - this.#scroll.scrollTop;
    const all = [...items, ...this.#items];
    const sticks = this.#sticks;
    this.replace(all);
    this.#sticks = sticks;
    this.#layout();
    if (!sticks) this.#scroll.scrollTop = this.#scroll.scrollHeight - before;
  }

  toEnd() {
    this.#sticks = true;
    this.onstick(true);
    this.#ask();
  }

  redraw() {
    for (const row of this.#rows.values()) row.remove();
    this.#rows.clear();
    this.#ask();
  }

  #drop(many) {
    const kept = this.#items.slice(many);
    const top = this.#scroll.scrollTop - this.#offset(many);
    this.replace(kept);
    if (!this.#sticks) this.#scroll.scrollTop = Math.max(0, top);
  }

  #ask() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#layout();
    });
  }

  #layout() {
    this.#space.style.height = `${this.#offset(this.#items.length)}px`;
    if (this.#sticks) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    const top = this.#scroll.scrollTop;
    const first = this.#find(Math.max(0, top - BEYOND));
    const last = Math.min(this.#items.length, this.#find(top + this.#scroll.clientHeight + BEYOND) + 1);
    for (const [index, row] of this.#rows) {
      if (index < first || index >= last) {
        row.remove();
        this.#rows.delete(index);
      }
    }
    let after = null;
    for (let index = last - 1; index >= first; index--) {
      let row = this.#rows.get(index);
      if (!row) {
        row = this.#draw(this.#items[index], index);
        this.#rows.set(index, row);
        this.#window.insertBefore(row, after);
      }
      after = row;
    }
    this.#window.style.transform = `translateY(${this.#offset(first)}px)`;
    let moved = false;
    for (const [index, row] of this.#rows) {
      const { height } = row.getBoundingClientRect();
      if (height && height !== this.#heights[index]) {
        if (!this.#sticks && this.#offset(index) < top) this.#scroll.scrollTop += height - this.#heights[index];
        this.#measure(index, height);
        moved = true;
      }
    }
    if (moved) {
      this.#space.style.height = `${this.#offset(this.#items.length)}px`;
      this.#window.style.transform = `translateY(${this.#offset(first)}px)`;
      if (this.#sticks) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    }
  }

  #forgetHeights() {
    const sums = this.#sums;
    sums.fill(0);
    for (let index = 0; index < this.#items.length; index++) {
      this.#heights[index] = 0;
      this.#measure(index, GUESS);
    }
    this.#ask();
  }

  #grow(size) {
    const heights = new Float64Array(size);
    heights.set(this.#heights);
    this.#heights = heights;
    this.#sums = new Float64Array(size + 1);
    for (let index = 1; index <= size; index++) {
      this.#sums[index] += heights[index - 1];
      const parent = index + (index & -index);
      if (parent <= size) this.#sums[parent] += this.#sums[index];
    }
  }

  #measure(index, height) {
    const more = height - this.#heights[index];
    this.#heights[index] = height;
    for (let at = index + 1; at < this.#sums.length; at += at & -at) this.#sums[at] += more;
  }

  // The height of everything before a row.
  #offset(index) {
    let sum = 0;
    for (let at = index; at > 0; at -= at & -at) sum += this.#sums[at];
    return sum;
  }

  // The row at a height.
  #find(offset) {
    let at = 0;
    let step = 1;
    while (step * 2 < this.#sums.length) step *= 2;
    for (; step > 0; step >>= 1) {
      if (at + step < this.#sums.length && this.#sums[at + step] <= offset) offset -= this.#sums[(at += step)];
    }
    return Math.min(at, Math.max(0, this.#items.length - 1));
  }
}
