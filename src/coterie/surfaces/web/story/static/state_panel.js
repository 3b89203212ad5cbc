// The story details panel; values can be edited in place.
import { nodes, on, one } from "../shared/dom.js";
import { api, put, remove } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const READ = {
  level: Number,
  list: (text) => text.split(",").map((part) => part.trim()).filter(Boolean),
  lines: (text) => text.split("\n").map((part) => part.trim()).filter(Boolean),
  moment: (text) => `${text}:00Z`,
};

export class StatePanel {
  constructor(chat) {
    this.path = `/chats/${chat}/drawer`;
    this.panel = one("#drawer");
    this.content = one("#drawer-content");
    this.memories = `/chats/${chat}/memories`;
    this.panel.addEventListener("drawer:opened", () => this.load());
    on("click", "#drawer [data-edit]", (_, button) => this.#edit(button));
  }

  // Events come in bursts after a turn: reload once after each burst.
  refresh() {
    clearTimeout(this.soon);
    if (!this.panel.hidden) this.soon = setTimeout(() => this.load(), 300);
  }

  async load() {
    const answer = await fetch(this.path, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const html = await answer.text();
    if (one("form", this.content)) return this.refresh(); // an edit is in progress
    this.#show(html);
  }

  async pin(button) {
    await put(`${this.memories}/${button.dataset.memory}/pin`, { pinned: button.dataset.pinned === "true" });
    await this.load();
  }

  chooseBackground(place) {
    const input = document.createElement("input");
    Object.assign(input, { type: "file", accept: "image/png,image/jpeg,image/webp" });
    input.addEventListener("change", async () => {
      try {
        const { id } = await api("POST", this.path.replace(/drawer$/, "picture"), input.files[0]);
        await this.setBackground(place, id);
      } catch (error) {
        showError(error);
      }
    });
    input.click();
  }

  async setBackground(place, value) {
    await api("PATCH", this.path, { edits: [{ field: `container.${place}.background`, value }] });
    await this.load();
  }

  forget(button) {
    const path = `${this.memories}/${button.dataset.memory}`;
    const act = async () => {
      try {
        await remove(path);
        toast(t("Memory forgotten."), { seconds: 4 });
        await this.load();
      } catch (error) {
        showError(error);
      }
    };
    toast(t("Forget this memory? It cannot be restored."), { kind: "warn", seconds: 10, action: t("Forget it"), act });
  }

  #show(html) {
    const made = nodes(html);
    // Keep which parts are open.
    for (const part of made.querySelectorAll("details")) {
      const title = one("h3", part).textContent;
      const there = [...this.content.querySelectorAll("details")].find((old) => one("h3", old).textContent === title);
      if (there) part.open = there.open;
    }
    const top = this.content.parentElement.scrollTop;
    this.content.replaceChildren(made);
    this.content.parentElement.scrollTop = top;
  }

  #edit(button) {
    const line = button.closest(".edit");
    const { field, kind } = line.dataset;
    const form = document.createElement("form");
    form.className = "edit-form";
    form.noValidate = true; // the server validates
    const input = makeField(kind, JSON.parse(line.dataset.value), JSON.parse(line.dataset.options ?? "[]"));
    input.setAttribute("aria-label", one(".edit-label", line).textContent);
    let open = true;
    const close = () => {
      open = false; // ignore the blur event that follows
      form.remove();
      button.hidden = false;
      button.focus();
    };
    form.append(input);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!open) return;
      const options = JSON.parse(line.dataset.options ?? "[]");
      const chosen = kind === "choice" ? options.find(([key]) => String(key) === input.value)[0] : null;
      const value = chosen ?? (READ[kind] ?? String)(input.value);
      try {
        await api("PATCH", this.path, { edits: [{ field, value }] });
        close();
        await this.load();
      } catch (error) {
        input.setAttribute("aria-invalid", "true");
        showError(error);
      }
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    input.addEventListener("change", () => input.matches("select") && form.requestSubmit());
    input.addEventListener("blur", () => {
      if (!open || input.hasAttribute("aria-invalid")) return;
      input.value === input.dataset.was ? close() : form.requestSubmit();
    });
    button.hidden = true;
    button.after(form);
    input.dataset.was = input.value;
    input.focus();
    input.select?.();
  }
}

function makeField(kind, value, options) {
  if (kind === "choice") {
    const select = document.createElement("select");
    select.append(...options.map(([key, label]) => new Option(label, key, false, key === value)));
    return select;
  }
  const input = document.createElement(kind === "text" || kind === "lines" ? "textarea" : "input");
  if (kind === "level") Object.assign(input, { type: "number", min: 0, max: 100 });
  if (kind === "moment") input.type = "datetime-local";
  input.value = kind === "moment" ? value.slice(0, 16) : value;
  return input;
}
