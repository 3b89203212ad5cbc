// The model panel: loaded when it is opened, and again after each change.
import { nodes, on, one } from "../shared/dom.js";
import { api } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const dialog = one("#model-panel");
const body = one("#model-panel-body");
const path = `/chats/${one("#chat").dataset.chat}/model`;

async function load() {
  const answer = await fetch(path, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
  if (answer?.ok) body.replaceChildren(nodes(await answer.text()));
  else toast(t("The model panel could not be loaded. Try again."), { kind: "danger" });
}

on("click", "[data-model-panel]", async () => {
  await load();
  openDialog(dialog);
});
on("form:done", "[data-model-form]", load);
on("change", "[data-import-preset]", async (_, field) => {
  const [file] = field.files;
  if (!file) return;
  field.value = "";
  try {
    const preset = await api("POST", `/models/samplers/import?name=${encodeURIComponent(file.name)}`, file);
    await load(); // before the toast: what is chosen after it is not lost
    toast(t("Imported “{name}”. Choose it under Preset.", { name: preset.name }), { kind: "success", seconds: 5 });
  } catch (error) {
    showError(error);
  }
});
