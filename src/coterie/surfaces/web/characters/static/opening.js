// The opening scene form: filled in by a model; empty if that fails or takes too long.
import { on, one } from "../shared/dom.js";

const scene = one("#scene");
let byHand = false;

on("click", "[data-by-hand]", () => (byHand = true));
// A late proposal must not overwrite what was typed.
document.addEventListener("htmx:before:swap", (event) => {
  const address = event.detail?.ctx?.request?.action ?? "";
  if (byHand && !String(address).includes("empty=true")) event.preventDefault();
});
for (const failed of ["htmx:response:error", "htmx:error"]) {
  document.addEventListener(failed, () => {
    if (!one("form", scene)) htmx.ajax("GET", scene.dataset.fallback, { target: "#scene", swap: "innerHTML" });
  });
}
document.addEventListener("htmx:after:swap", () => {
  scene.removeAttribute("aria-busy");
});
