// The pictures of a character: upload, replace, remove with undo; and the import of a chat.
import { all, on, one } from "../shared/dom.js";
import { api, post, remove } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const path = `/characters/${one("[data-pictures]").dataset.pictures}/pictures`;

async function upload(files, use, named) {
  try {
    for (const file of files) {
      const name = named ?? file.name.replace(/\.[^.]+$/, "");
      await api("POST", `${path}/picture?use=${use}&name=${encodeURIComponent(name.slice(0, 100))}`, file);
    }
    location.reload();
  } catch (error) {
    showError(error);
  }
}

function chooseFiles(use, name) {
  const input = document.createElement("input");
  Object.assign(input, { type: "file", accept: "image/png,image/jpeg,image/webp", multiple: name === undefined });
  input.addEventListener("change", () => upload([...input.files], use, name));
  input.click();
}

on("click", "[data-add-pictures]", (_, button) => chooseFiles(button.dataset.addPictures));
on("submit", "#expression-form", (event, form) => {
  event.preventDefault();
  chooseFiles("expression", form.elements.expression.value.trim() || "neutral");
});
on("click", "[data-import-chat]", (_, button) => {
  const input = Object.assign(document.createElement("input"), { type: "file", accept: ".jsonl" });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    const title = encodeURIComponent(file.name.replace(/\.jsonl$/, "").slice(0, 200));
    try {
      const chat = await post(`/characters/${button.dataset.importChat}/chats/import?title=${title}`, file);
      location.assign(`/chats/${chat.id}`);
    } catch (error) {
      showError(error);
    }
  });
  input.click();
});
on("click", "[data-remove-picture]", async (_, button) => {
  const { use, name, picture } = button.dataset;
  try {
    await remove(`${path}/${use}/${encodeURIComponent(name)}`);
    button.closest("figure").remove();
    all("[data-remove-picture]").at(0)?.focus();
    toast(t("Picture removed."), { action: t("Undo"), act: () => post(path, { use, name, picture }).then(() => location.reload(), showError) });
  } catch (error) {
    showError(error);
  }
});
