// The talk beside a document: threads, words as they are spoken, and saying something, perhaps about chosen words. F2, F4
import { all, one } from "./dom.js";
import { post } from "./api.js";
import { reconcile } from "./reconcile.js";
import { tellTimes } from "./app.js";
import { announceTrouble } from "./trouble.js";

export class Talk {
  constructor(page, sheet) {
    this.base = `/draft/workspaces/${page.workspace}`;
    this.page = page;
    this.sheet = sheet;
    this.thread = page.thread;
    this.place = one("#talk");
    this.form = one("#say-form");
    this.field = one("#say");
    this.everybody = one("#to").innerHTML;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send().catch(announceTrouble);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && matchMedia("(hover: hover)").matches) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    one("#stop").addEventListener("click", () => post(`/draft/threads/${this.thread}/stop`).catch(announceTrouble));
  }

  get open() {
    return one(".said[data-state=open]", this.place);
  }

  async show(thread) {
    this.thread = thread;
    this.sheet.thread = thread;
    for (const tab of all("[data-thread]", one("#threads"))) tab.setAttribute("aria-pressed", String(tab.dataset.thread === thread));
    if (!thread) {
      this.place.replaceChildren();
      one("#to").innerHTML = this.everybody;
      return this.settle();
    }
    await (this.opening = this.refresh());
    this.place.scrollTop = this.place.scrollHeight;
  }

  async refresh() {
    if (!this.thread) return;
    const asked = this.thread;
    const turn = (this.asked = (this.asked ?? 0) + 1);
    const answer = await fetch(`/draft/threads/${asked}/talk`, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    const html = answer?.ok && (await answer.text());
    if (!html || asked !== this.thread || turn < (this.shown ?? 0)) return;
    this.shown = turn;
    const spoke = this.open?.id;
    this.#keep(() => this.#replace(html));
    tellTimes(this.place);
    const members = one("#talk-members", this.place);
    if (members && one("#to").dataset.of !== asked) {
      one("#to").replaceChildren(members.content.cloneNode(true));
      one("#to").dataset.of = asked;
    }
    const said = spoke && document.getElementById(spoke);
    if (said && said.dataset.state !== "open") one("#heard").textContent = `${said.dataset.name}: ${one(".said-text", said).textContent}`;
    this.settle();
  }

  // Words may have been heard while the answer was under way: what has been read is not taken back.
  #replace(html) {
    const heard = this.open && one(".said-text", this.open);
    reconcile(this.place, html);
    const open = heard && !heard.isConnected && this.open;
    const text = open && open.id === heard.closest(".said").id && one(".said-text", open);
    if (text && text.textContent.length < heard.textContent.length) text.replaceWith(heard);
  }

  words({ thread, reply, from, blocks }) {
    const said = thread === this.thread && document.getElementById(`m-${reply}`);
    if (!said) return;
    const text = one(".said-text", said);
    this.#keep(() => {
      for (const [at, html] of blocks.entries()) {
        const place = text.children[from + at] ?? text.appendChild(Object.assign(document.createElement("div"), { className: "block", dir: "auto" }));
        place.innerHTML = html;
      }
    });
  }

  // What is being read stays where it is; at the end it stays at the end.
  #keep(change) {
    const stuck = this.place.scrollHeight - this.place.scrollTop - this.place.clientHeight < 60;
    change();
    if (stuck) this.place.scrollTop = this.place.scrollHeight;
  }

  settle() {
    const open = this.open;
    const name = open?.dataset.name;
    one("#lock").textContent = open ? `${name} is writing.` : "";
    one("#stop").hidden = !open;
    one("#send").hidden = Boolean(open);
    if (!this.thread) delete one("#to").dataset.of;
    this.page.settle?.();
  }

  pick(range) {
    this.picked = range;
    one("#picked").hidden = !range;
    if (range) one("#picked span").textContent = range.text;
  }

  async send() {
    const text = this.field.value.trim();
    if (!text || this.sending || this.open) return this.field.focus();
    this.sending = true;
    one("#send").setAttribute("aria-busy", "true");
    try {
      await this.opening; // who can answer here is known once the thread is
      const to = one("#to").value;
      if (!to) throw Object.assign(new Error("Nobody is there to ask. Meet a character first."), { status: 0 });
      const selection = this.picked ? await this.sheet.selection(this.picked) : null;
      if (!this.thread) {
        const told = { document: this.page.path, branch: this.page.branch, members: [{ bot: to }], title: text.slice(0, 80) };
        const made = await post(`${this.base}/threads`, selection ? { ...told, selection } : told);
        this.thread = made.id;
        this.sheet.thread = made.id;
      }
      await post(`/draft/threads/${this.thread}/messages`, { text, to, selection, key: (this.key ??= crypto.randomUUID()) });
      this.key = null;
      this.field.value = "";
      this.pick(null);
      await this.refresh();
      this.place.scrollTop = this.place.scrollHeight;
    } finally {
      this.sending = false;
      one("#send").removeAttribute("aria-busy");
      this.field.focus();
    }
  }

}
