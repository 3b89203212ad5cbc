// Command palette (⌘K): pages, chats and characters; chats and characters are fetched when it opens.
import { all, isMac, one } from "./dom.js";
import { get } from "./api.js";
import { t } from "./messages.js";

const PAGES = [
  [t("Home"), "/"],
  ...all(".rail-link[href]").map((link) => [link.textContent.trim(), link.getAttribute("href")]),
  [t("Inbox"), "/draft/inbox"], [t("New character"), "/characters/new"], [t("Search"), "/search"], [t("Models"), "/settings#models"], [t("Budgets"), "/settings#budgets"],
  [t("Backups"), "/settings#backups"], [t("About"), "/about"],
].map(([name, path]) => ({ name, path, kind: t("Page") }));
let entries = PAGES;
let asked = 0;

export function startPalette() {
  const palette = one("#palette");
  const field = one("input", palette);
  const list = one("ul", palette);
  for (const key of all("[data-mod-key]")) key.textContent = isMac ? "⌘K" : t("Ctrl K");

  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = entries.filter(({ name, more = "" }) => words.every((word) => `${name} ${more}`.toLowerCase().includes(word)));
    list.replaceChildren(...matches.slice(0, 12).map(option));
    if (field.value.trim()) list.append(option({ name: t("Search every chat for “{words}”", { words: field.value.trim() }), path: `/search?q=${encodeURIComponent(field.value.trim())}`, kind: t("Search") }));
    choose(list.firstElementChild);
  };
  const option = ({ name, path, kind }, at) => {
    const item = document.createElement("li");
    item.id = `place-${at ?? "search"}`;
    item.setAttribute("role", "option");
    item.dataset.path = path;
    const small = document.createElement("small");
    small.textContent = kind;
    const label = document.createElement("span");
    label.textContent = name;
    label.dir = "auto";
    item.append(label, small);
    return item;
  };
  const choose = (item) => {
    for (const other of list.children) other.setAttribute("aria-selected", String(other === item));
    if (item) field.setAttribute("aria-activedescendant", item.id);
    item?.scrollIntoView({ block: "nearest" });
  };
  const go = (item) => item && location.assign(item.dataset.path);

  palette.addEventListener("toggle", async () => {
    if (!palette.open) return;
    show();
    if (performance.now() - asked < 10_000 && asked) return;
    asked = performance.now();
    const [chats, characters] = await Promise.all([get("/chats"), get("/characters")]).catch(() => [[], []]);
    entries = [
      ...chats.map((chat) => ({ name: chat.title, more: chat.host.name, path: `/chats/${chat.id}`, kind: t("Chat with {name}", { name: chat.host.name }) })),
      ...characters.map((character) => ({ name: character.name, path: `/characters/${character.id}`, kind: t("Character") })),
      ...PAGES,
    ];
    show();
  });
  // Cleared on close, so that the first letters typed after opening are kept.
  palette.addEventListener("close", () => (field.value = ""));
  field.addEventListener("input", show);
  field.addEventListener("keydown", (event) => {
    const chosen = one("[aria-selected=true]", list);
    if (event.key === "ArrowDown") choose(chosen?.nextElementSibling ?? list.firstElementChild);
    else if (event.key === "ArrowUp") choose(chosen?.previousElementSibling ?? list.lastElementChild);
    else if (event.key === "Enter") go(chosen);
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", (event) => go(event.target.closest("li")));
}
