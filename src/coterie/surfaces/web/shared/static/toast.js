// Toasts: short messages with an optional action. They stay while the pointer is over them.
import { one } from "./dom.js";
import { showError } from "./errors.js";

export function toast(text, { kind = "plain", action = "", act = null, seconds = 6 } = {}) {
  const region = one("#toasts");
  const shown = one("#toast-template").content.firstElementChild.cloneNode(true);
  shown.classList.replace("toast-plain", `toast-${kind}`);
  if (kind === "danger") shown.setAttribute("role", "alert");
  one(".toast-text", shown).textContent = text;
  const button = one(".toast-action", shown);
  if (action) {
    button.textContent = action;
    button.hidden = false;
    button.addEventListener("click", async () => {
      close();
      try {
        await act();
      } catch (error) {
        showError(error);
      }
    });
  }
  let timer;
  const close = () => {
    clearTimeout(timer);
    shown.remove();
    if (!region.childElementCount) region.hidePopover?.();
  };
  const wait = () => (timer = setTimeout(close, seconds * 1000));
  one("[data-dismiss]", shown).addEventListener("click", close);
  shown.addEventListener("pointerenter", () => clearTimeout(timer));
  shown.addEventListener("pointerleave", wait);
  // A popover is above dialogs; showing it again moves it to the top.
  region.hidePopover?.();
  region.append(shown);
  region.showPopover?.();
  wait();
  return close;
}
