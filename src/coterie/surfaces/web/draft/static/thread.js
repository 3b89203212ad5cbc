// The discussion threads of a document: messages, streamed replies, and sending a message, optionally about a selection.
import { all, one } from "../shared/dom.js";
import { post } from "../shared/api.js";
import { reconcile } from "../shared/reconcile.js";
import { formatTimes } from "../shared/app.js";
import { showError } from "../shared/errors.js";

export class ThreadPanel {
  constructor(page, editor) {
    this.base = `/draft/workspaces/${page.workspace}`;
    this.page = page;
    this.editor = editor;
    this.thread = page.thread;
    this.place = one("#messages");
    this.form = one("#thread-form-element");
    this.field = one("#message-field");
    this.everybody = one("#to").innerHTML;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send().catch(showError);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && matchMedia("(hover: hover)").matches) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    one("#stop").addEventListener("click", () => post(`/draft/threads/${this.thread}/stop`).catch(showError));
  }

  get open() {
    return one(".message[data-state=open]", this.place);
  }

  async show(thread) {
    this.thread = thread;
    this.editor.thread = thread;
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
    const answer = await fetch(`/draft/threads/${asked}/messages`, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    const html = answer?.ok && (await answer.text());
    if (!html || asked !== this.thread || turn < (this.shown ?? 0)) return;
    this.shown = turn;
    const spoke = this.open?.id;
    this.#keep(() => this.#replace(html));
    formatTimes(this.place);
    const members = one("#thread-members", this.place);
    if (members && one("#to").dataset.of !== asked) {
      one("#to").replaceChildren(members.content.cloneNode(true));
      one("#to").dataset.of = asked;
    }
    const said = spoke && document.getElementById(spoke);
    if (said && said.dataset.state !== "open") one("#announcer").textContent = `${said.dataset.name}: ${one(".message-text", said).textContent}`;
    this.settle();
  }

  // A streamed reply may be ahead of the fetched HTML: the longer text stays.
  #replace(html) {
    const heard = this.open && one(".message-text", this.open);
    reconcile(this.place, html);
    const open = heard && !heard.isConnected && this.open;
    const text = open && open.id === heard.closest(".message").id && one(".message-text", open);
    if (text && text.textContent.length < heard.textContent.length) text.replaceWith(heard);
  }

  words({ thread, reply, from, blocks }) {
    const said = thread === this.thread && document.getElementById(`m-${reply}`);
    if (!said) return;
    const text = one(".message-text", said);
    this.#keep(() => {
      for (const [at, html] of blocks.entries()) {
        const place = text.children[from + at] ?? text.appendChild(Object.assign(document.createElement("div"), { className: "block", dir: "auto" }));
        place.innerHTML = html;
      }
    });
  }

  // Keeps the scroll position; at the end it stays at the end.
  #keep(change) {
    const stuck = this.place.scrollHeight - this.place.scrollTop - this.place.clientHeight < 60;
    change();
    if (stuck) this.place.scrollTop = this.place.scrollHeight;
  }

  settle() {
    const open = this.open;
    const name = open?.dataset.name;
    one("#composer-status").textContent = open ? `${name} is writing.` : "";
    one("#stop").hidden = !open;
    one("#send").hidden = Boolean(open);
    if (!this.thread) delete one("#to").dataset.of;
    this.page.settle?.();
  }

  pick(range) {
    this.picked = range;
    one("#selection").hidden = !range;
    if (range) one("#selection span").textContent = range.text;
  }

  async send() {
    const text = this.field.value.trim();
    if (!text || this.sending || this.open) return this.field.focus();
    this.sending = true;
    one("#send").setAttribute("aria-busy", "true");
    try {
      await this.opening; // the thread's members are known once it is loaded
      const to = one("#to").value;
      if (!to) throw Object.assign(new Error("No character to ask. Create a character first."), { status: 0 });
      const selection = this.picked ? await this.editor.selection(this.picked) : null;
      if (!this.thread) {
        const data = { document: this.page.path, branch: this.page.branch, members: [{ bot: to }], title: text.slice(0, 80) };
        const made = await post(`${this.base}/threads`, selection ? { ...data, selection } : data);
        this.thread = made.id;
        this.editor.thread = made.id;
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
