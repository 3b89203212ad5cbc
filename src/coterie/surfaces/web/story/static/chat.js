// The chat page: shows live updates and sends actions.
import { all, nodes, on, one } from "../shared/dom.js";
import { turnActions } from "./turn_actions.js";
import { post } from "../shared/api.js";
import { Composer } from "../shared/composer.js";
import { StatePanel } from "./state_panel.js";
import { listen } from "../shared/live_updates.js";
import { shortcut } from "../shared/shortcuts.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { Timeline } from "./timeline.js";

const page = one("#chat");
const chat = page.dataset.chat;
const at = Number(page.dataset.at);
const turns = new Timeline(chat, one("#scroll"), one("#timeline"));
const composer = new Composer(`draft:${chat}`, {
  say: (text, key, form) => post(`/chats/${chat}/turns`, { text, key, speaker: form.elements.speaker.value || null }),
  stop: () => post(`/chats/${chat}/stop`),
});
const drawer = new StatePanel(chat);
const can = { ...turnActions(chat, turns), pin: (button) => drawer.pin(button), forget: (button) => drawer.forget(button) };
const live = one("[data-live]");
const GUESTS = ["guest_joined", "guest_left"];
const HEAD = [...GUESTS, "manual_edit", "scene_opened", "clock_moved"];
let connected = false;
let model = "";
let menuTurn = "";
let headTimer = 0;
let readTimer = 0;

listen({ [chat]: at, instance: at }, onMessage);
updateStatus();
markRead();

function onMessage(message) {
  if (message.name === "open" || message.name === "lost") connected = message.name === "open";
  else if (message.name === "turn") {
    const open = turns.open;
    turns.turn(message);
    if (open && message.id === open.dataset.turn && message.state !== "open") announceReply(message.id);
    if (message.state !== "open") markRead();
    drawer.refresh();
  } else if (message.name === "words") turns.showWords(message);
  else if (message.name === "timeline") {
    if (message.gone) return location.assign("/chats");
    turns.replace(message);
    drawer.refresh();
  } else if (message.name === "changed") onChange(message);
  else if (message.name === "job-failed") showFailedJob(message);
  updateStatus();
}

function onChange({ kind, model: name }) {
  if (kind === "prompt_sent") model = name;
  if (HEAD.includes(kind)) refreshHead(GUESTS.includes(kind));
  drawer.refresh();
}

function refreshHead(cast) {
  clearTimeout(headTimer);
  headTimer = setTimeout(async () => {
    const answer = await fetch(`/chats/${chat}/head`, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok || one("#chat-head :popover-open")) return;
    one("#chat-head").replaceWith(nodes(await answer.text()));
    if (cast) refreshWho();
  }, 150);
}

function refreshWho() {
  const cast = all(".chat-cast a", one("#chat-head"));
  one("#who").hidden = cast.length < 2;
  const select = one("#who select");
  select.replaceChildren(new Option("automatic", ""), ...cast.map((link) => new Option(link.title, link.getAttribute("href").split("/").pop())));
}

// Status line: connection, who is replying, and with which model.
function updateStatus() {
  const open = turns.open;
  const name = open?.dataset.name;
  const silent = open && !one(".turn-text", open).textContent.trim();
  composer.lock(open ? `${name} is ${silent ? "thinking" : "speaking"}.` : "");
  const [state, text] = !connected
    ? ["failed", "Not connected. It will be tried again."]
    : open
      ? ["working", `${name} is ${silent ? "thinking" : "speaking"}`]
      : ["live", "Saved"];
  live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
  const shownModel = open ? model : "";
  if (one("#status-model").textContent !== shownModel) one("#status-model").textContent = shownModel;
}

// Screen readers get a finished reply once, not word by word.
function announceReply(id) {
  const turn = document.getElementById(`t-${id}`);
  if (turn) one("#announcer").textContent = `${turn.dataset.name}: ${one(".turn-text", turn).textContent}`;
}

function showFailedJob({ kind, error }) {
  const text = `A background job failed (${kind.replaceAll("_", " ")}).`;
  toast(text, { kind: "danger", seconds: 15, action: "Show", act: () => location.assign("/ops") });
  if (document.hidden && "Notification" in window && Notification.permission === "granted") new Notification("Coterie", { body: `${text} ${error}` });
}

// Turns visible at the bottom count as read; reported at most every 800 ms.
function markRead() {
  clearTimeout(readTimer);
  readTimer = setTimeout(() => !document.hidden && turns.stuck && post(`/chats/${chat}/read`).catch(() => {}), 800);
}

async function act(name, button, turn) {
  button?.setAttribute("aria-busy", "true");
  try {
    await can[name](button, turn);
  } catch (error) {
    showError(error);
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

on("click", "[data-act]", (_, button) => act(button.dataset.act, button, button.closest("#turn-menu") ? menuTurn : button.closest(".turn")?.dataset.turn));
on("click", "[data-turn-menu]", (_, button) => {
  const turn = button.closest(".turn");
  const menu = one("#turn-menu");
  menuTurn = turn.dataset.turn;
  menu.anchor = button;
  one("[data-act=prompt]", menu).hidden = turn.classList.contains("turn-you");
  menu.togglePopover();
});
one("#composer").addEventListener("said", () => turns.toBottom());

shortcut("/", () => one("#message-field").focus());
shortcut("r", () => turns.last && !turns.last.matches(".turn-you, [data-state=open]") && act("regenerate"));
shortcut("e", () => all("[data-act=edit]", one("#timeline")).at(-1)?.click());
shortcut("d", () => one("[data-toggles='#drawer']").click());
shortcut("End", () => turns.toBottom());
shortcut("ArrowLeft", () => can.swipe(-1));
shortcut("ArrowRight", () => can.swipe(1));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && turns.open && !one("dialog[open], :popover-open:not(#toasts)")) composer.stop();
});
