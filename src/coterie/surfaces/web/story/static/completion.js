// Completion in the message field: commands after "/" at its beginning, names after "@".
import { one } from "../shared/dom.js";
import { t } from "../shared/messages.js";

export class Completion {
  // `commands()` gives [{ name, hint }], `names()` the names of everybody present.
  constructor(field, { commands, names }) {
    Object.assign(this, { field, commands, names, matches: [], chosen: 0 });
    this.list = document.createElement("ul");
    Object.assign(this.list, { className: "completion", id: "completion", hidden: true });
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", t("Completions"));
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", "completion");
    field.parentElement.append(this.list);
    field.addEventListener("input", () => this.#update());
    field.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    // Before the message field's own keys: Enter takes a completion instead of sending.
    field.addEventListener("keydown", (event) => this.#key(event), { capture: true });
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const item = event.target.closest("li");
      if (item) this.#take(Number(item.dataset.at));
    });
  }

  close() {
    this.list.hidden = true;
    this.matches = [];
    this.field.removeAttribute("aria-activedescendant");
  }

  #update() {
    const before = this.field.value.slice(0, this.field.selectionStart);
    const command = before.match(/^\/(\S*)$/);
    const name = before.match(/(?:^|\s)@([^\s@]*)$/);
    if (!command && !name) return this.close();
    const typed = (command ?? name)[1].toLowerCase();
    const offered = command ? this.commands().map(({ name, hint }) => ({ text: `/${name}`, hint, key: name })) : this.names().map((text) => ({ text, hint: "", key: text.toLowerCase() }));
    this.matches = offered.filter(({ key }) => key.toLowerCase().startsWith(typed));
    this.start = before.length - typed.length - 1;
    if (!this.matches.length) return this.close();
    this.list.replaceChildren(
      ...this.matches.map(({ text, hint }, at) => {
        const item = document.createElement("li");
        item.id = `completion-${at}`;
        item.dataset.at = at;
        item.setAttribute("role", "option");
        const label = document.createElement("span");
        label.textContent = text;
        const small = document.createElement("small");
        small.textContent = hint;
        item.append(label, small);
        return item;
      }),
    );
    this.list.hidden = false;
    this.#choose(0);
  }

  #choose(at) {
    this.chosen = (at + this.matches.length) % this.matches.length;
    for (const item of this.list.children) item.setAttribute("aria-selected", String(Number(item.dataset.at) === this.chosen));
    this.field.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
    one(`#completion-${this.chosen}`).scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    if (this.list.hidden || event.isComposing) return;
    const { text } = this.matches[this.chosen];
    // A command that is typed in full is run by Enter, not completed again.
    if (event.key === "Enter" && this.field.value === text) return this.close();
    if (event.key === "ArrowDown") this.#choose(this.chosen + 1);
    else if (event.key === "ArrowUp") this.#choose(this.chosen - 1);
    else if (event.key === "Tab" || event.key === "Enter") this.#take(this.chosen);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }

  #take(at) {
    const { text } = this.matches[at];
    const end = this.field.selectionStart;
    const inserted = text.startsWith("/") ? `${text} ` : `@${text} `;
    this.field.setRangeText(inserted, this.start, end, "end");
    this.close();
    this.field.focus();
    this.field.dispatchEvent(new Event("input", { bubbles: true }));
    this.close();
  }
}
