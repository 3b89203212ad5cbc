// Behaviour of the components dialog, drawer, menu, tabs, slider and copy button.
import { all, on, one } from "./dom.js";
import { toast } from "./toast.js";
import { t } from "./messages.js";

export function openDialog(dialog) {
  if (dialog.open) return;
  dialog.showModal();
  one("[autofocus], input, textarea, select", dialog)?.focus();
}

export function startDialogs() {
  on("click", "[data-opens]", (_, button) => {
    button.closest("[popover]")?.hidePopover();
    openDialog(one(button.dataset.opens));
  });
  on("click", "[data-closes]", (_, button) => button.closest("dialog").close());
  on("click", "dialog", (event, dialog) => event.target === dialog && dialog.close());
  on("click", "[data-toggles]", (_, button) => {
    const panel = one(button.dataset.toggles);
    panel.hidden = !panel.hidden;
    for (const other of all(`[data-toggles="${button.dataset.toggles}"][aria-expanded]`)) other.setAttribute("aria-expanded", String(!panel.hidden));
    panel.dispatchEvent(new CustomEvent(panel.hidden ? "drawer:closed" : "drawer:opened", { bubbles: true }));
  });
  on("input", "[data-slider]", (_, slider) => (one("output", slider.parentElement).value = slider.value));
  on("click", "[data-copies]", async (_, button) => {
    await navigator.clipboard.writeText(one("pre, [data-copy-text]", button.parentElement).textContent);
    toast(t("Copied."), { seconds: 2 });
  });
  startMenus();
  startTabs();
}

// Places a menu under its opener, within the window. `anchor` is the opener of a menu shared by many buttons.
function startMenus() {
  document.addEventListener(
    "beforetoggle",
    (event) => {
      const menu = event.target;
      if (!(menu instanceof Element) || !menu.matches("[data-menu]")) return;
      const opener = menu.anchor ?? one(`[popovertarget="${menu.id}"]`);
      opener?.setAttribute("aria-expanded", String(event.newState === "open"));
      if (event.newState === "open") requestAnimationFrame(() => place(menu, opener));
    },
    true,
  );
  on("keydown", "[data-menu]", (event, menu) => {
    const items = all("[role=menuitem]", menu);
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items.at(to % items.length)?.focus();
  });
  on("click", "[data-menu] [role=menuitem]", (event, item) => {
    if (item.getAttribute("aria-disabled") === "true") return event.preventDefault();
    item.closest("[popover]")?.hidePopover();
  });
}

function place(menu, opener) {
  const from = opener.getBoundingClientRect();
  const size = menu.getBoundingClientRect();
  const below = from.bottom + size.height + 8 < innerHeight;
  menu.style.top = `${Math.max(8, below ? from.bottom + 4 : from.top - size.height - 4)}px`;
  menu.style.left = `${Math.max(8, Math.min(from.right - size.width, innerWidth - size.width - 8))}px`;
  one("[role=menuitem]", menu)?.focus({ focusVisible: false });
}

function startTabs() {
  const choose = (tab) => {
    const tabs = all("[role=tab]", tab.parentElement);
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    tab.focus();
  };
  on("click", "[role=tab]", (_, tab) => choose(tab));
  on("keydown", "[role=tab]", (event, tab) => {
    const tabs = all("[role=tab]", tab.parentElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) choose(tabs.at((tabs.indexOf(tab) + step) % tabs.length));
  });
}
