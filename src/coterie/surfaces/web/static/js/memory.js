// The memory browser: pins, corrections, forgetting; choices of the filter count at once.
import { all, nodes, on, one } from "./dom.js";
import { put, remove } from "./api.js";
import { openDialog } from "./surfaces.js";
import { toast } from "./toast.js";
import { announceTrouble } from "./trouble.js";

const place = (row) => `?room=${encodeURIComponent(row.dataset.room)}`;
const path = (row) => `/memories/${encodeURIComponent(row.dataset.memory)}`;
let forgetting = null;

on("change", "[data-sift] select", (_, field) => field.form.requestSubmit());
// Nothing asked is nothing in the address.
on("submit", "[data-sift]", (_, form) => {
  for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
});
addEventListener("pageshow", () => all("[data-sift] :disabled").forEach((field) => (field.disabled = false)));

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html", "HX-Request": "true" } });
  if (!answer.ok) {
    const told = await answer.json();
    throw Object.assign(new Error(`${told.error} ${told.fix}`), { what: told.error, fix: told.fix, status: answer.status });
  }
  return nodes(await answer.text());
}

async function again(row) {
  const fresh = await fetched(`/memory/${encodeURIComponent(row.dataset.memory)}/row${place(row)}`);
  const made = one("article", fresh);
  const why = one(".why", row);
  if (why) one(".mind-text", made).append(why); // what was asked has not changed
  row.replaceWith(made);
  return made;
}

on("click", "[data-pin]", async (_, button) => {
  const row = button.closest("[data-memory]");
  const pinned = button.getAttribute("aria-pressed") !== "true";
  try {
    await put(`${path(row)}/pin${place(row)}`, { pinned });
    one("[data-pin]", await again(row)).focus();
    toast(pinned ? "Always at hand from now on." : "No longer pinned.", {
      action: "Undo",
      act: async () => {
        await put(`${path(row)}/pin${place(row)}`, { pinned: !pinned });
        await again(one(`[data-memory="${CSS.escape(row.dataset.memory)}"]`));
      },
    });
  } catch (error) {
    announceTrouble(error);
  }
});

on("click", "[data-edit]", async (_, button) => {
  const row = button.closest("[data-memory]");
  try {
    one("#memory-edit-body").replaceChildren(await fetched(`/memory/${encodeURIComponent(row.dataset.memory)}/edit${place(row)}`));
    openDialog(one("#memory-edit"));
  } catch (error) {
    announceTrouble(error);
  }
});

document.addEventListener("form:done", async (event) => {
  const id = event.target.dataset.memoryForm;
  if (!id) return;
  one("#memory-edit").close();
  const row = one(`[data-memory="${CSS.escape(id)}"]`);
  if (row) one("[data-edit]", await again(row)).focus();
  toast("Corrected.", { kind: "success", seconds: 3 });
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
    toast("Forgotten. It will not come back.", { seconds: 5 });
  } catch (error) {
    announceTrouble(error);
  }
  one("#memory-forget").close();
});

on("change", "[data-import-owner]", (_, field) => {
  one("#memories").dataset.drop = `/memories/import?owner=${encodeURIComponent(field.value)}`;
});
document.addEventListener("drop:done", () => one("#import-memories").addEventListener("close", () => location.reload(), { once: true }));
