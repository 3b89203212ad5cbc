// Personas: the default one, pictures, deletion with undo.
import { on } from "../shared/dom.js";
import { post, put, remove } from "../shared/api.js";
import "../shared/picture_crop.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

on("change", "#default-persona select", (_, select) =>
  put("/you/personas/default", { persona: select.value }).then(() => toast(t("Saved."), { kind: "success", seconds: 2 }), showError),
);
on("click", "[data-delete-persona]", async (_, button) => {
  const row = button.closest("[data-persona]");
  const path = `/you/personas/${button.dataset.deletePersona}`;
  try {
    await remove(path);
  } catch (error) {
    return showError(error);
  }
  row.hidden = true;
  const undo = async () => {
    await post(`${path}/restore`);
    row.hidden = false;
  };
  toast(t("Persona deleted."), { action: t("Undo"), act: undo, seconds: 30 });
});
