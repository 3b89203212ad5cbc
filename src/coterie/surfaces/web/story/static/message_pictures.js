// Pictures of the next message: chosen, pasted or dropped; made smaller, which also removes where they were taken.
// Like unsent text, they are kept over a reload.
import { escaped, nodes, one } from "../shared/dom.js";
import { api } from "../shared/api.js";
import { showError } from "../shared/errors.js";
import { plural, t } from "../shared/messages.js";

const MOST = 4;
const LONGEST_SIDE = 1568;

export class MessagePictures {
  constructor(chat, composer) {
    Object.assign(this, { chat, composer, stored: `pictures:${chat}` });
    this.list = one("#message-pictures");
    this.ids = this.#read();
    this.#show();
    composer.field.addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    composer.form.addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
    composer.form.addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
  }

  choose() {
    const input = document.createElement("input");
    Object.assign(input, { type: "file", accept: "image/*", multiple: true });
    input.addEventListener("change", () => this.#add([...input.files]));
    input.click();
  }

  remove(id) {
    this.#set(this.ids.filter((one) => one !== id));
    this.composer.field.focus();
  }

  // Sends a message with the pictures; they are kept if that fails.
  async sent(send) {
    const ids = this.ids;
    await send(ids);
    this.#set(this.ids.filter((one) => !ids.includes(one)));
  }

  #take(event, data) {
    const files = [...(data?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (!files.length) return;
    event.preventDefault();
    this.#add(files);
  }

  async #add(files) {
    try {
      for (const file of files) {
        if (this.ids.length >= MOST) throw new Error(plural("A message can have {count} pictures.", "A message can have {count} pictures.", MOST));
        const { id } = await api("POST", `/chats/${this.chat}/picture`, await smaller(file));
        if (!this.ids.includes(id)) this.#set([...this.ids, id]);
      }
    } catch (error) {
      showError(error);
    }
  }

  #set(ids) {
    this.ids = ids;
    this.composer.key = null; // another message
    try {
      ids.length ? localStorage.setItem(this.stored, ids.join(" ")) : localStorage.removeItem(this.stored);
    } catch {
      // no storage: they last as long as the page
    }
    this.#show();
  }

  #read() {
    try {
      return (localStorage.getItem(this.stored) ?? "").split(" ").filter((id) => /^[0-9a-f]{32}$/.test(id));
    } catch {
      return [];
    }
  }

  #show() {
    const items = this.ids.map(
      (id, n) => `<button type="button" class="message-picture" data-act="remove-picture" data-picture="${id}" aria-label="${escaped(t("Remove picture {number}", { number: n + 1 }))}"><img src="/pictures/${id}" alt=""></button>`,
    );
    this.list.replaceChildren(nodes(items.join("")));
  }
}

async function smaller(file) {
  const bitmap = await createImageBitmap(file).catch(() => {
    throw new Error(t("This picture cannot be read. Choose a PNG, JPEG or WebP picture."));
  });
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) });
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, file.type === "image/png" ? "image/png" : "image/jpeg", 0.9));
}
