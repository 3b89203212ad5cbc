// The scene is read by a model, and that may take a while or fail: the form comes all the same.
import { on, one } from "./dom.js";

const scene = one("#scene");
let byHand = false;

on("click", "[data-by-hand]", () => (byHand = true));
// A proposal that comes after somebody chose to write by hand would wipe what they wrote.
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
