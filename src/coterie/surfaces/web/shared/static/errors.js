// Shows errors: as a toast, or as a blocking dialog if the server could not save (503).
import { escaped, nodes, one } from "./dom.js";
import { t } from "./messages.js";

export function showError(error) {
  if (error.status === 503) return block(error);
  import("./toast.js").then(({ toast }) => toast(error.message, { kind: "danger", seconds: 12 }));
}

function block(error) {
  let dialog = one("#storage-error");
  if (!dialog) {
    document.body.append(
      nodes(`<dialog class="dialog" id="storage-error" aria-labelledby="storage-title"><div class="dialog-sheet">
        <header class="dialog-head"><h2 id="storage-title">${escaped(t("This could not be saved"))}</h2></header>
        <div class="dialog-body"><p></p><p class="soft"></p></div>
        <footer class="dialog-foot"><button type="button" class="button button-primary" data-closes>${escaped(t("Try again"))}</button></footer>
      </div></dialog>`),
    );
    dialog = one("#storage-error");
  }
  const [what, fix] = dialog.querySelectorAll(".dialog-body p");
  what.textContent = error.what;
  fix.textContent = error.fix;
  if (!dialog.open) dialog.showModal();
}
