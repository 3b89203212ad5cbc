// The message field: keeps unsent text, sends with an idempotency key, and is locked while a reply is generated.
import { one, on } from "./dom.js";
import { showError } from "./errors.js";
import { t } from "./messages.js";

export class Composer {
  // `say(text, key, form)` sends; a repeated key is the same message. `stop()` stops the reply, if supported.
  // `draft` is the storage key of unsent text.
  // `intercept(text)` may handle a text that is no message; it then returns a promise.
  // `attached()` tells whether there is something to send besides the text.
  constructor(draft, { say, stop = null, intercept = null, attached = () => false }) {
    this.form = one(".composer");
    this.field = one("#message-field");
    Object.assign(this, { draft, say, halt: stop, intercept, attached });
    this.field.value = this.#stored();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("input", () => this.#store());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && matchMedia("(hover: hover)").matches) {
        event.preventDefault();
        this.send({ reply: !(event.ctrlKey || event.metaKey) });
      }
    });
    on("click", "#stop", () => this.stop());
  }

  // Disables sending and shows `why`; an empty string enables it.
  lock(why) {
    this.locked = why;
    one("#composer-status").textContent = why;
    one("#stop").hidden = !why || !this.halt;
    one("#send").hidden = Boolean(why);
  }

  // Puts a text into the field, as if it was typed.
  write(text) {
    this.field.value = text;
    this.#store();
    this.field.focus();
  }

  async send({ reply = true } = {}) {
    const text = this.field.value.trim();
    if ((!text && !this.attached()) || this.sending) return this.field.focus();
    const handled = this.intercept?.(text);
    if (handled) {
      this.write("");
      return handled.catch(showError);
    }
    if (this.locked) return (one("#composer-status").textContent = `${this.locked} ${t("Stop, or wait.")}`);
    this.sending = true;
    const key = (this.key ??= crypto.randomUUID());
    one("#send").setAttribute("aria-busy", "true");
    try {
      await this.say(text, key, this.form, reply);
      this.key = null;
      this.field.value = "";
      this.#store();
      this.form.dispatchEvent(new CustomEvent("said", { bubbles: true }));
    } catch (error) {
      showError(error);
    } finally {
      this.sending = false;
      one("#send").removeAttribute("aria-busy");
      this.field.focus();
    }
  }

  async stop() {
    try {
      await this.halt?.();
    } catch (error) {
      showError(error);
    }
    this.field.focus();
  }

  #stored() {
    try {
      return localStorage.getItem(this.draft) ?? "";
    } catch {
      return "";
    }
  }

  #store() {
    this.key = null; // changed text is another message
    try {
      this.field.value ? localStorage.setItem(this.draft, this.field.value) : localStorage.removeItem(this.draft);
    } catch {
      // no storage: the draft lasts as long as the page
    }
  }
}
