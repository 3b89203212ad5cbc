// The list of workspaces: create a document.
import { on, one } from "../shared/dom.js";
import { put } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { showError } from "../shared/errors.js";

let folder = "";
const title = one("#document-title");
const file = one("#document-path");
const named = (text) => text.toLowerCase().normalize("NFKD").replace(/[^\p{Letter}\p{Number}]+/gu, "-").replace(/^-+|-+$/g, "") || "text";

on("click", "[data-new-document]", (_, button) => {
  folder = button.dataset.newDocument;
  openDialog(one("#new-document"));
});
title.addEventListener("input", () => (file.placeholder = `${named(title.value)}.md`));

one("#new-document-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const path = file.value.trim() || `${named(title.value)}.md`;
  const address = `/draft/workspaces/${folder}/documents/${path.split("/").map(encodeURIComponent).join("/")}`;
  try {
    await put(address, { text: `# ${title.value.trim()}\n\n` });
    location.assign(address);
  } catch (error) {
    showError(error);
  }
});
