// The memory browser: pin, edit, delete; filters apply immediately.
import { all, nodes, on, one } from "../shared/dom.js";
import { put, remove } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const place = (row) => `?room=${encodeURIComponent(row.dataset.room)}`;
const path = (row) => `/memories/${encodeURIComponent(row.dataset.memory)}`;
let forgetting = null;

on("change", "[data-filter] select", (_, field) => field.form.requestSubmit());
// Empty filters are left out of the URL.
on("submit", "[data-filter]", (_, form) => {
  for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
});
addEventListener("pageshow", () => all("[data-filter] :disabled").forEach((field) => (field.disabled = false)));

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html", "HX-Request": "true" } });
  if (!answer.ok) {
    const data = await answer.json();
    throw Object.assign(new Error(`${data.error} ${data.fix}`), { what: data.error, fix: data.fix, status: answer.status });
  }
  return nodes(await answer.text());
}

async function again(row) {
  const fresh = await fetched(`/memory/${encodeURIComponent(row.dataset.memory)}/row${place(row)}`);
  const made = one("article", fresh);
  const why = one(".why", row);
  if (why) one(".memory-item-text", made).append(why); // the score stays valid
  row.replaceWith(made);
  return made;
}

on("click", "[data-pin]", async (_, button) => {
  const row = button.closest("[data-memory]");
  const pinned = button.getAttribute("aria-pressed") !== "true";
  try {
    await put(`${path(row)}/pin${place(row)}`, { pinned });
    one("[data-pin]", await again(row)).focus();
    toast(pinned ? t("Pinned.") : t("Unpinned."), {
      action: t("Undo"),
      act: async () => {
        await put(`${path(row)}/pin${place(row)}`, { pinned: !pinned });
        await again(one(`[data-memory="${CSS.escape(row.dataset.memory)}"]`));
      },
    });
  } catch (error) {
    showError(error);
  }
});

on("click", "[data-edit]", async (_, button) => {
  const row = button.closest("[data-memory]");
  try {
    one("#memory-edit-body").replaceChildren(await fetched(`/memory/${encodeURIComponent(row.dataset.memory)}/edit${place(row)}`));
    openDialog(one("#memory-edit"));
  } catch (error) {
    showError(error);
  }
});

document.addEventListener("form:done", async (event) => {
  const id = event.target.dataset.memoryForm;
  if (!id) return;
  one("#memory-edit").close();
  const row = one(`[data-memory="${CSS.escape(id)}"]`);
  if (row) one("[data-edit]", await again(row)).focus();
  toast(t("Corrected."), { kind: "success", seconds: 3 });
});

on("click", "[data-forget]", (_, button) => {
  forgetting = button.closest("[data-memory]");
  one("[data-forget-text]").textContent = one("[data-text]", forgetting).textContent;
  openDialog(one("#memory-forget"));
});

on("click", "[data-forget-now]", async () => {
  try {
    await remove(path(forgetting));
    forgetting.remove();
    toast(t("Memory deleted."), { seconds: 5 });
  } catch (error) {
    showError(error);
  }
  one("#memory-forget").close();
});

on("change", "[data-import-owner]", (_, field) => {
  one("#memories").dataset.drop = `/memories/import?owner=${encodeURIComponent(field.value)}`;
});
document.addEventListener("drop:done", () => one("#import-memories").addEventListener("close", () => location.reload(), { once: true }));
