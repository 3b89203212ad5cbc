// The list of chats: filters, and organising a chat: pin, rename, tag, archive, duplicate, delete with undo.
import { on, one } from "../shared/dom.js";
import { api, post, remove } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const ASKED = { title: [t("Title"), ""], tags: [t("Tags"), t("With commas between them.")] };
const chatOf = (element) => element.closest("[data-chat]").dataset.chat;
let asked = null;

async function run(work) {
  try {
    await work();
  } catch (error) {
    showError(error);
  }
}

const organise = (chat, change) => run(async () => (await api("PATCH", `/chats/${chat}`, change), location.reload()));

on("change", "#filters select", (_, field) => field.form.requestSubmit());
on("click", "[data-organise]", (_, button) => organise(chatOf(button), JSON.parse(button.dataset.organise)));
on("click", "[data-ask]", (_, button) => {
  asked = { chat: chatOf(button), what: button.dataset.ask };
  const [label, hint] = ASKED[asked.what];
  one("#ask-label").textContent = label;
  one("#ask-hint").textContent = hint;
  one("#ask-value").value = button.dataset.value;
  openDialog(one("#ask"));
});
on("submit", "#ask-form", (event, form) => {
  event.preventDefault();
  const text = form.elements.value.value.trim();
  const tags = text.split(",").map((tag) => tag.trim()).filter(Boolean);
  organise(asked.chat, asked.what === "tags" ? { tags } : { title: text });
});
on("click", "[data-duplicate]", (_, button) => run(async () => location.assign(`/chats/${(await post(`/chats/${chatOf(button)}/duplicate`)).id}`)));
on("click", "[data-delete-chat]", (_, button) =>
  run(async () => {
    const row = button.closest("[data-chat]");
    const chat = row.dataset.chat;
    await remove(`/chats/${chat}`);
    row.hidden = true;
    const undo = async () => {
      await post(`/chats/${chat}/restore`);
      row.hidden = false;
    };
    toast(t("Chat deleted."), { action: t("Undo"), act: undo, seconds: 30 });
  }),
);
on("click", "[data-restore-chat]", (_, button) => run(async () => location.assign(`/chats/${(await post(`/chats/${button.dataset.restoreChat}/restore`)).id}`)));
