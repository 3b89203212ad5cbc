// A desk conversation: fetches messages and activity again after each live update, and sends actions.
import { on, one } from "../shared/dom.js";
import { api, post, put, remove } from "../shared/api.js";
import { Composer } from "../shared/composer.js";
import { listen } from "../shared/live_updates.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

const page = one("#desk");
const chat = page.dataset.chat;
const url = `/desk/${chat}`;
const scroll = one("#scroll");
const live = one("[data-live]");
const WIDE = matchMedia("(min-width: 68.01rem)");
const DEBOUNCE_MS = 150;
let timer = 0;
let missed = false;

if (WIDE.matches) one("#drawer").hidden = false;
toEnd();
showSpending();
markRead();
document.addEventListener("visibilitychange", markRead);
listen({ [chat]: Number(page.dataset.at), instance: Number(page.dataset.at) }, onMessage);

function onMessage(message) {
  if (message.name === "open" || message.name === "lost") {
    live.dataset.state = message.name === "open" ? "live" : "failed";
    live.textContent = message.name === "open" ? t("Live") : t("Not connected; retrying");
    if (message.name === "open") refresh();
  } else if (message.chat === chat) refresh();
}

// Workers cause many updates per second: refreshes are throttled and never run in parallel.
function refresh() {
  if (timer) missed = true;
  else timer = setTimeout(fetchParts, DEBOUNCE_MS);
}

async function fetchParts() {
  const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
  await Promise.allSettled([show("messages"), show("activity")]);
  timer = 0;
  if (missed) refresh();
  missed = false;
  showSpending();
  if (atEnd) toEnd();
  markRead();
}

const show = (part) => htmx.ajax("GET", `${url}/${part}`, { target: `#${part}`, swap: "innerMorph" });

function toEnd() {
  scroll.scrollTop = scroll.scrollHeight;
}

// Visible messages count as read; the server writes nothing if there is nothing new.
function markRead() {
  if (!document.hidden) post(`${url}/read`).catch(() => {});
}

function showSpending() {
  one("#spent").textContent = t("{spent} today", { spent: one("#spent-today")?.textContent ?? "" });
}

async function act(request, button) {
  button?.setAttribute("aria-busy", "true");
  try {
    await request();
    refresh();
    return true;
  } catch (error) {
    showError(error);
    return false;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

new Composer(`desk:${chat}`, {
  say: async (text, key) => {
    await post(`${url}/messages`, { text, key });
    refresh();
  },
});

on("click", "[data-cancel]", (_, button) => act(() => post(`${url}/processes/${button.dataset.cancel}/cancel`), button));
on("click", "[data-answer]", (_, button) =>
  act(() => post(`${url}/processes/${button.dataset.answer}/answer`, { allowed: button.dataset.allowed === "true" }), button));
on("click", "[data-switch]", (_, button) =>
  act(() => post(`${url}/schedules/${button.dataset.switch}/switch`, { on: button.dataset.on === "true" }), button));
on("click", "[data-skill]", (_, button) => act(() => put(`/desk/skills/${button.dataset.skill}`, { on: button.dataset.on === "true" }), button));
on("click", "[data-remove]", (_, button) => act(() => remove(`${url}/schedules/${button.dataset.remove}`), button));
on("click", "[data-steps]", (_, button) =>
  act(async () => {
    await htmx.ajax("GET", `${url}/processes/${button.dataset.steps}`, { target: "#steps-body", swap: "innerHTML" });
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
  const path = `${url}/processes/${one("#follow-up").dataset.worker}/follow-up`;
  if (text && (await act(() => api("POST", path, { text })))) {
    one("#follow-up-text").value = "";
    one("#follow-up").close();
  }
});
// "Every weekday at 8:00" as a cron expression.
function writeCron() {
  const days = one("#schedule-days").value;
  const [hour, minute] = (one("#schedule-time").value || "08:00").split(":").map(Number);
  one("#schedule-cron").value = days === "hour" ? `${minute} * * * *` : days === "month" ? `${minute} ${hour} 1 * *` : `${minute} ${hour} * * ${days}`;
}
for (const id of ["#schedule-days", "#schedule-time"]) one(id).addEventListener("input", writeCron);
one("#schedule-zone").value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";
one("#schedule-form").addEventListener("form:done", () => {
  one("#schedule").close();
  refresh();
});
