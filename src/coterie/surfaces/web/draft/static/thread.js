// The discussion threads of a document: messages, streamed replies, and sending a message, optionally about a selection.
import { all, one } from "../shared/dom.js";
import { post } from "../shared/api.js";
import { reconcile } from "../shared/reconcile.js";
import { formatTimes } from "../shared/app.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

export class ThreadPanel {
  constructor(page, editor) {
    this.base = `/draft/workspaces/${page.workspace}`;
    this.page = page;
    this.editor = editor;
    this.thread = page.thread;
    this.list = one("#messages");
    this.form = one("#thread-form-element");
    this.field = one("#message-field");
    this.allCharacters = one("#to")?.innerHTML;
    this.list.addEventListener("click", (event) => {
      const button = event.target.closest("[data-retry]");
      if (button) this.retry(button).catch(showError);
    });
    if (!this.form) return; // a guest who may only read
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
    return one(".message[data-state=open]", this.list);
  }

  async show(thread) {
    this.thread = thread;
    this.editor.thread = thread;
    for (const tab of all("[data-thread]", one("#threads"))) tab.setAttribute("aria-pressed", String(tab.dataset.thread === thread));
    if (!thread) {
      this.list.replaceChildren();
      if (this.form) one("#to").innerHTML = this.allCharacters;
      return this.updateStatus();
    }
    await (this.opening = this.refresh());
    this.list.scrollTop = this.list.scrollHeight;
  }

  async refresh() {
    if (!this.thread) return;
    const thread = this.thread;
    const request = (this.requests = (this.requests ?? 0) + 1);
    const answer = await fetch(`/draft/threads/${thread}/messages`, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    const html = answer?.ok && (await answer.text());
    if (!html || thread !== this.thread || request < (this.shownRequest ?? 0)) return;
    this.shownRequest = request;
    const openId = this.open?.id;
    this.#keepScroll(() => this.#replace(html));
    formatTimes(this.list);
    const members = one("#thread-members", this.list);
    if (this.form && members && one("#to").dataset.of !== thread) {
      one("#to").replaceChildren(members.content.cloneNode(true));
      one("#to").dataset.of = thread;
    }
    const finished = openId && document.getElementById(openId);
    if (finished && finished.dataset.state !== "open") one("#announcer").textContent = `${finished.dataset.name}: ${one(".message-text", finished).textContent}`;
    this.updateStatus();
  }

  // A streamed reply may be ahead of the fetched HTML: the longer text stays.
  #replace(html) {
    const streamed = this.open && one(".message-text", this.open);
    reconcile(this.list, html);
    const open = streamed && !streamed.isConnected && this.open;
    const text = open && open.id === streamed.closest(".message").id && one(".message-text", open);
    if (text && text.textContent.length < streamed.textContent.length) text.replaceWith(streamed);
  }

  showWords({ thread, reply, from, blocks }) {
    const message = thread === this.thread && document.getElementById(`m-${reply}`);
    if (!message) return;
    const text = one(".message-text", message);
    this.#keepScroll(() => {
      for (const [at, html] of blocks.entries()) {
        const block = text.children[from + at] ?? text.appendChild(Object.assign(document.createElement("div"), { className: "block", dir: "auto" }));
        block.innerHTML = html;
      }
    });
  }

  // Keeps the scroll position; at the end it stays at the end.
  #keepScroll(change) {
    const atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 60;
    change();
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  updateStatus() {
    const open = this.open;
    const name = open?.dataset.name;
    if (!this.form) return this.page.updateStatus?.();
    one("#composer-status").textContent = open ? t("{name} is writing.", { name }) : "";
    one("#stop").hidden = !open;
    one("#send").hidden = Boolean(open);
    if (!this.thread) delete one("#to").dataset.of;
    this.page.updateStatus?.();
  }

  setSelection(range) {
    if (!this.form) return;
    this.selected = range;
    one("#selection").hidden = !range;
    if (range) one("#selection span").textContent = range.text;
  }

  async retry(button) {
    button.disabled = true;
    try {
      await post(`/draft/threads/${this.thread}/turns/${button.dataset.retry}/retry`);
    } finally {
      button.disabled = false;
    }
    await this.refresh();
  }

  async send() {
    const text = this.field.value.trim();
    if (!text || this.sending || this.open) return this.field.focus();
    this.sending = true;
    one("#send").setAttribute("aria-busy", "true");
    try {
      await this.opening; // the thread's members are known once it is loaded
      const to = one("#to").value;
      if (!to && !this.thread) throw Object.assign(new Error(t("No character to ask. Create a character first.")), { status: 0 });
      const selection = this.selected ? await this.editor.selection(this.selected) : null;
      if (!this.thread) {
        const data = { document: this.page.path, branch: this.page.branch, members: [{ bot: to }], title: text.slice(0, 80) };
        const created = await post(`${this.base}/threads`, selection ? { ...data, selection } : data);
        this.thread = created.id;
        this.editor.thread = created.id;
      }
      await post(`/draft/threads/${this.thread}/messages`, { text, to: to === "addressed" ? null : to, selection, key: (this.key ??= crypto.randomUUID()) });
      this.key = null;
      this.field.value = "";
      this.setSelection(null);
      await this.refresh();
      this.list.scrollTop = this.list.scrollHeight;
    } finally {
      this.sending = false;
      one("#send").removeAttribute("aria-busy");
      this.field.focus();
    }
  }

}
