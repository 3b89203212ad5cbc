// The lorebook editor: loads the form of an entry when it is opened, tries texts, and says where the book is used.
import { all, nodes, on, one } from "../shared/dom.js";
import { api, post, put, remove } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const page = one("#lorebook");
const path = page ? `/lorebooks/${page.dataset.book}` : "";

async function run(work) {
  try {
    return await work();
  } catch (error) {
    showError(error);
  }
}

async function load(entry) {
  const place = one(".lore-form", entry);
  const answer = await fetch(`${path}/entries/${entry.dataset.entry}`, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.ok) place.replaceChildren(nodes(await answer.text()));
}

document.addEventListener("toggle", (event) => {
  const entry = event.target;
  if (entry.matches?.(".lore-entry") && entry.open && !one("form", entry)) load(entry);
}, true);

on("click", "[data-add-entry]", () =>
  run(async () => {
    const { entry } = await post(`${path}/entries`, { name: t("New entry") });
    location.hash = `entry-${entry}`;
    location.reload();
  }),
);
on("click", "[data-remove-entry]", (_, button) =>
  run(async () => {
    const entry = button.closest(".lore-entry");
    const removed = await remove(`${path}/entries/${button.dataset.removeEntry}`);
    entry.hidden = true;
    toast(t("Entry removed."), {
      action: t("Undo"),
      act: async () => {
        await post(`${path}/entries/restore`, removed);
        entry.hidden = false;
      },
      seconds: 30,
    });
  }),
);
on("click", "[data-delete-book]", () =>
  run(async () => {
    await remove(path);
    location.assign(`/lorebooks?deleted=${encodeURIComponent(page.dataset.book)}`);
  }),
);
on("form:done", ".lore-entry form", (_, form) => {
  const entry = form.closest(".lore-entry");
  entry.classList.toggle("lore-off", !form.elements.enabled.checked);
  one("summary strong", entry).textContent = form.elements.name.value || form.elements.keys.value.split("\n").slice(0, 3).join(", ") || t("Without a name");
});
on("change", "#use input", (_, input) => {
  const chosen = (name) => all(`input[name=${name}]:checked`, input.form).map((box) => box.value);
  const use = { everywhere: input.form.elements.everywhere.checked, characters: chosen("characters"), chats: chosen("chats") };
  run(async () => {
    await put(`${path}/use`, use);
    toast(t("Saved."), { kind: "success", seconds: 2 });
  });
});
on("submit", "#preview", (event, form) => {
  event.preventDefault();
  run(async () => {
    const { text, chat } = form.elements;
    const found = await post("/lorebooks/preview", { text: text.value, chat: chat.value, book: page.dataset.book });
    one("#results").replaceChildren(...found.map(shown));
  });
});

function shown(entry) {
  const item = document.createElement("li");
  item.className = entry.fires ? "lore-fires" : "lore-silent";
  const name = document.createElement("strong");
  name.textContent = entry.name;
  const why = document.createElement("span");
  why.textContent = entry.fires ? t("used: {why}", { why: entry.why }) : t("not used: {why}", { why: entry.why });
  item.append(name, " ", why);
  return item;
}

const deleted = new URLSearchParams(location.search).get("deleted");
if (deleted) {
  history.replaceState(null, "", location.pathname);
  const undo = async () => location.assign(`/lorebooks/${(await api("POST", `/lorebooks/${deleted}/restore`)).id}`);
  toast(t("Lorebook deleted."), { action: t("Undo"), act: undo, seconds: 30 });
}
const wanted = location.hash && page && document.getElementById(location.hash.slice(1));
if (wanted) {
  wanted.open = true;
  wanted.scrollIntoView({ block: "center" });
}
