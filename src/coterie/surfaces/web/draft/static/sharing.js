// The dialog of a document's links: create one for a guest, show those that exist, revoke them.
import { on, one } from "../shared/dom.js";
import { api, get, post } from "../shared/api.js";
import { formatTimes } from "../shared/app.js";
import { showError } from "../shared/errors.js";
import { toast } from "../shared/toast.js";
import { t } from "../shared/messages.js";

const ROLES = { writer: t("writer"), commenter: t("commenter"), reader: t("reader") };

export function startSharing({ base, path, branch }) {
  const dialog = one("#invite");
  if (!dialog) return;
  const address = `${base}/guests/${path}`;

  const show = async () => {
    const rows = (await get(address)).map((link) => {
      const row = one("#invite-row").content.firstElementChild.cloneNode(true);
      one("strong", row).textContent = link.name;
      one(".invite-role", row).textContent = ROLES[link.role] ?? link.role;
      one("time", row).dateTime = link.expires;
      one("[data-revoke]", row).dataset.revoke = link.id;
      one("[data-revoke]", row).setAttribute("aria-label", t("Revoke the link of {name}", { name: link.name }));
      return row;
    });
    one("#invite-links").replaceChildren(...rows);
    one("#invite-none").hidden = rows.length > 0;
    formatTimes(dialog);
  };

  dialog.addEventListener("toggle", () => dialog.open && show().catch(showError));
  one("#invite-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const data = { name: one("#invite-name").value, role: one("#invite-role").value, days: Number(one("#invite-days").value), branch };
      const { link } = await post(address, data);
      one(".invite-code").textContent = new URL(link, location.href).href;
      one("#invite-link").hidden = false;
      await show();
    } catch (error) {
      showError(error);
    }
  });
  on("click", "[data-revoke]", async (_, button) => {
    try {
      await api("DELETE", `/draft/guests/${button.dataset.revoke}`);
      toast(t("Revoked: the link opens nothing any more."), { seconds: 3 });
      await show();
    } catch (error) {
      showError(error);
    }
  });
}
