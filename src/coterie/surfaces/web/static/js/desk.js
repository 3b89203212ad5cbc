// The desk's page: hears that something happened, asks for what it shows, and lets one act on it.
import { on, one } from "./dom.js";
import { api, post, put, remove } from "./api.js";
import { Composer } from "./composer.js";
import { listen } from "./live.js";
import { announceTrouble } from "./trouble.js";

const page = one("#desk");
const chat = page.dataset.chat;
const here = `/desk/${chat}`;
const scroll = one("#scroll");
const live = one("[data-live]");
const WIDE = matchMedia("(min-width: 68.01rem)");
const SOON_MS = 150;
let soon = 0;
let missed = false;

if (WIDE.matches) one("#drawer").hidden = false;
toEnd();
tellSpent();
tellRead();
document.addEventListener("visibilitychange", tellRead);
listen({ [chat]: Number(page.dataset.at), instance: Number(page.dataset.at) }, hear);

function hear(message) {
  if (message.name === "open" || message.name === "lost") {
    live.dataset.state = message.name === "open" ? "live" : "failed";
    live.textContent = message.name === "open" ? "Live" : "Not connected; it is tried again";
    if (message.name === "open") refresh();
  } else if (message.chat === chat) refresh();
}

// Somebody at work is heard of many times a second: a look is never put off by the next word, and never overtaken.
function refresh() {
  if (soon) missed = true;
  else soon = setTimeout(look, SOON_MS);
}

async function look() {
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  await Promise.allSettled([show("talk"), show("now")]);
  soon = 0;
  if (missed) refresh();
  missed = false;
  tellSpent();
  if (atEnd) toEnd();
  tellRead();
}

const show = (part) => htmx.ajax("GET", `${here}/${part}`, { target: `#${part}`, swap: "innerMorph" });

function toEnd() {
  scroll.scrollTop = scroll.scrollHeight;
}

// What somebody sees is not news to them; without anything new the server writes nothing.
function tellRead() {
  if (!document.hidden) post(`${here}/read`).catch(() => {});
}

function tellSpent() {
  one("#spent").textContent = `${one("#spent-today")?.textContent ?? ""} today`;
}

async function act(work, button) {
  button?.setAttribute("aria-busy", "true");
  try {
    await work();
    refresh();
    return true;
  } catch (error) {
    announceTrouble(error);
    return false;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

new Composer(`desk:${chat}`, {
  say: async (text, key) => {
    await post(`${here}/messages`, { text, key });
    refresh();
  },
});

on("click", "[data-cancel]", (_, button) => act(() => post(`${here}/processes/${button.dataset.cancel}/cancel`), button));
on("click", "[data-answer]", (_, button) =>
  act(() => post(`${here}/processes/${button.dataset.answer}/answer`, { allowed: button.dataset.allowed === "true" }), button));
on("click", "[data-switch]", (_, button) =>
  act(() => post(`${here}/schedules/${button.dataset.switch}/switch`, { on: button.dataset.on === "true" }), button));
on("click", "[data-skill]", (_, button) => act(() => put(`/desk/skills/${button.dataset.skill}`, { on: button.dataset.on === "true" }), button));
on("click", "[data-remove]", (_, button) => act(() => remove(`${here}/schedules/${button.dataset.remove}`), button));
on("click", "[data-steps]", (_, button) =>
  act(async () => {
    await htmx.ajax("GET", `${here}/processes/${button.dataset.steps}`, { target: "#steps-body", swap: "innerHTML" });
    one("#steps").showModal();
  }, button));

on("click", "[data-follow-up]", (_, button) => {
  one("#follow-up").dataset.worker = button.dataset.followUp;
  one("#follow-up-question").textContent = button.dataset.question;
  one("#follow-up").showModal();
});
one("#follow-up-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = one("#follow-up-text").value.trim();
  const path = `${here}/processes/${one("#follow-up").dataset.worker}/follow-up`;
  if (text && (await act(() => api("POST", path, { text })))) {
    one("#follow-up-text").value = "";
    one("#follow-up").close();
  }
});
one("#schedule-zone").value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
one("#schedule-form").addEventListener("form:done", () => {
  one("#schedule").close();
  refresh();
});
