// Writing: a message is kept until the server has it; while somebody speaks, sending waits and says why. S20
import { one, on } from "./dom.js";
import { announceTrouble } from "./trouble.js";

export class Composer {
  // `say(text, key, form)` sends; the same key again is the same message. `stop()` ends what is being said, where that can be.
  // Under `draft` the browser keeps what was not sent yet.
  constructor(draft, { say, stop = null }) {
    this.form = one(".composer");
    this.field = one("#say");
    Object.assign(this, { draft, say, halt: stop });
    this.field.value = this.#stored();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("input", () => this.#store());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && matchMedia("(hover: hover)").matches) {
        event.preventDefault();
        this.send();
      }
    });
    on("click", "#stop", () => this.stop());
  }

  // `why` is said where the hint is; with nothing to say, sending is free.
  lock(why) {
    this.locked = why;
    one("#lock").textContent = why;
    one("#stop").hidden = !why || !this.halt;
    one("#send").hidden = Boolean(why);
  }

  async send() {
    const text = this.field.value.trim();
    if (!text || this.sending) return this.field.focus();
    if (this.locked) return (one("#lock").textContent = `${this.locked} Stop, or wait.`);
    this.sending = true;
    const key = (this.key ??= crypto.randomUUID());
    one("#send").setAttribute("aria-busy", "true");
    try {
      await this.say(text, key, this.form);
      this.key = null;
      this.field.value = "";
      this.#store();
      this.form.dispatchEvent(new CustomEvent("said", { bubbles: true }));
    } catch (error) {
      announceTrouble(error);
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
      announceTrouble(error);
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
    this.key = null; // another text is another message
    try {
      this.field.value ? localStorage.setItem(this.draft, this.field.value) : localStorage.removeItem(this.draft);
    } catch {
      // storage is off: the draft lives as long as the page
    }
  }
}
