// A new chat: the opening as prose, with the scene behind "Edit scene". "Begin", or a first message, starts the chat.
// A model may still be reading the scene then; it is waited for a moment, else the chat begins without its details.
import { on, one } from "../shared/dom.js";
import { api, post } from "../shared/api.js";
import { Composer } from "../shared/composer.js";
import { read } from "../shared/forms.js";
import { showError } from "../shared/errors.js";

const page = one("#opening");
const scene = one("#scene");
const WAIT_MS = 4000;
let byHand = false;
let begun = null;

const sceneForm = () => one("form", scene);

on("click", "[data-by-hand]", () => (byHand = true));
// A late proposal must not overwrite what was typed.
document.addEventListener("htmx:before:swap", (event) => {
  const address = event.detail?.ctx?.request?.action ?? "";
  if (byHand && !String(address).includes("empty=true")) event.preventDefault();
});
for (const failed of ["htmx:response:error", "htmx:error"]) {
  document.addEventListener(failed, () => {
    if (!sceneForm()) htmx.ajax("GET", scene.dataset.fallback, { target: "#scene", swap: "innerHTML" });
  });
}
document.addEventListener("htmx:after:swap", () => {
  scene.removeAttribute("aria-busy");
  showSceneLine();
});

// The place, the hour and the weather under the character's name.
function showSceneLine() {
  const form = sceneForm();
  if (!form) return;
  const { "place.name": place, time, weather } = form.elements;
  const line = [place.value, time.value.split("T")[1], weather.value].filter(Boolean).join(" · ");
  if (line) one("[data-scene-line]").textContent = line;
}

on("click", "[data-edit-scene]", (_, button) => {
  scene.hidden = !scene.hidden;
  one(".opening-prose").hidden = !scene.hidden;
  button.setAttribute("aria-expanded", String(!scene.hidden));
  if (!scene.hidden) one("input, textarea", scene)?.focus();
});
scene.addEventListener("input", showSceneLine);

async function proposed() {
  for (const until = Date.now() + WAIT_MS; !sceneForm() && Date.now() < until; ) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return sceneForm() ? read(sceneForm()) : { greeting: JSON.parse(page.dataset.greeting) };
}

// The chat, begun once however often it is asked for.
function begin() {
  begun ??= (async () => post(`/characters/${page.dataset.character}/kickoff`, await proposed()))();
  return begun.catch((error) => {
    begun = null;
    throw error;
  });
}

const enter = (chat) => location.assign(`/chats/${encodeURIComponent(chat.id)}#write`);

const composer = new Composer(`opening:${page.dataset.character}`, {
  say: async (text, key) => {
    const chat = await begin();
    await api("POST", `/chats/${chat.id}/turns`, { text, key });
    enter(chat);
  },
});
if (matchMedia("(hover: hover)").matches) composer.field.focus({ preventScroll: true });

on("click", "[data-begin]", async (_, button) => {
  if (composer.field.value.trim()) return composer.send();
  button.setAttribute("aria-busy", "true");
  try {
    enter(await begin());
  } catch (error) {
    button.removeAttribute("aria-busy");
    showError(error);
  }
});
