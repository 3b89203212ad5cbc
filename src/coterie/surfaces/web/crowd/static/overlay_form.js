// Builds the address of the overlay from the form, with the options that differ from their defaults.
import { DEFAULTS } from "./overlay_options.js";

const form = document.getElementById("overlay-form");
const address = document.getElementById("overlay-address");
const open = document.getElementById("overlay-open");

function build() {
  const url = new URL(form.dataset.address);
  url.searchParams.set("token", form.dataset.token);
  const data = new FormData(form);
  data.set("background", data.get("filled") ? data.get("background") : DEFAULTS.background);
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const chosen = data.get(name);
    if (chosen !== null && chosen !== "" && String(value) !== chosen) url.searchParams.set(name, chosen);
  }
  address.value = url.href;
  open.href = url.href;
}

form.addEventListener("input", build);
form.addEventListener("submit", (event) => event.preventDefault());
address.addEventListener("focus", () => address.select());
build();
