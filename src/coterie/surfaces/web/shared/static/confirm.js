// Asks for the password before something that gives power over the machine; the confirmation is for one request.
import { escaped, nodes, one } from "./dom.js";
import { post } from "./api.js";
import { t } from "./messages.js";

// Resolves to a confirmation, or to null if the person cancels.
export function confirm(what) {
  const dialog = build();
  one("[data-confirm-what]", dialog).textContent = what;
  const form = one("form", dialog);
  const field = one("input", dialog);
  const note = one(".field-error", dialog);
  field.value = note.textContent = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    let given = null;
    form.onsubmit = async (event) => {
      event.preventDefault();
      try {
        given = (await post("/confirm", { password: field.value })).confirmation;
        dialog.close();
      } catch (error) {
        note.textContent = `${error.what.replace(/^password: /, "")} ${error.fix}`;
        field.setAttribute("aria-invalid", "true");
        field.select();
      }
    };
    dialog.onclose = () => {
      field.value = "";
      field.removeAttribute("aria-invalid");
      resolve(given);
    };
  });
}

function build() {
  const existing = one("#confirm-password");
  if (existing) return existing;
  document.body.append(
    nodes(`<dialog class="dialog" id="confirm-password" aria-labelledby="confirm-password-title"><form class="dialog-sheet" method="dialog">
      <header class="dialog-head"><h2 id="confirm-password-title">${escaped(t("Confirm with your password"))}</h2></header>
      <div class="dialog-body"><p data-confirm-what></p>
        <div class="field"><label for="confirm-password-field">${escaped(t("Password"))}</label><input id="confirm-password-field" type="password" required autocomplete="current-password" aria-describedby="confirm-password-error"><p class="field-error" id="confirm-password-error" role="alert"></p></div></div>
      <footer class="dialog-foot"><button type="submit" class="button button-primary">${escaped(t("Confirm"))}</button><button type="button" class="button button-ghost" data-closes>${escaped(t("Cancel"))}</button></footer>
    </form></dialog>`),
  );
  return one("#confirm-password");
}
