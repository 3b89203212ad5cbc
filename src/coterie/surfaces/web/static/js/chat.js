// The chat page: hears what happens, shows it, and lets one act on it.
import { all, nodes, on, one } from "./dom.js";
import { acts } from "./past.js";
import { post } from "./api.js";
import { Composer } from "./composer.js";
import { Drawer } from "./drawer.js";
import { listen } from "./live.js";
import { shortcut } from "./shortcuts.js";
import { toast } from "./toast.js";
import { announceTrouble } from "./trouble.js";
import { Turns } from "./turns.js";

const page = one("#chat");
const chat = page.dataset.chat;
const at = Number(page.dataset.at);
const turns = new Turns(chat, one("#scroll"), one("#timeline"));
const composer = new Composer(`draft:${chat}`, {
  say: (text, key, form) => post(`/chats/${chat}/turns`, { text, key, speaker: form.elements.speaker.value || null }),
  stop: () => post(`/chats/${chat}/stop`),
});
const drawer = new Drawer(chat);
const can = { ...acts(chat, turns), pin: (button) => drawer.pin(button), forget: (button) => drawer.forget(button) };
const live = one("[data-live]");
const GUESTS = ["guest_joined", "guest_left"];
const HEAD = [...GUESTS, "manual_edit", "scene_opened", "clock_moved"];
let connected = false;
let model = "";
let menuTurn = "";
let headSoon = 0;
let readSoon = 0;

listen({ [chat]: at, instance: at }, hear);
settle();
markRead();

function hear(message) {
  if (message.name === "open" || message.name === "lost") connected = message.name === "open";
  else if (message.name === "turn") {
    const spoke = turns.open;
    turns.turn(message);
    if (spoke && message.id === spoke.dataset.turn && message.state !== "open") readOut(message.id);
    if (message.state !== "open") markRead();
    drawer.refresh();
  } else if (message.name === "words") turns.words(message);
  else if (message.name === "timeline") {
    if (message.gone) return location.assign("/chats");
    turns.replace(message);
    drawer.refresh();
  } else if (message.name === "aside") aside(message);
  else if (message.name === "trouble") tellTrouble(message);
  settle();
}

function aside({ kind, model: asked }) {
  if (kind === "prompt_sent") model = asked;
  if (HEAD.includes(kind)) refreshHead(GUESTS.includes(kind));
  drawer.refresh();
}

function refreshHead(cast) {
  clearTimeout(headSoon);
  headSoon = setTimeout(async () => {
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
  select.replaceChildren(new Option("whoever fits", ""), ...cast.map((link) => new Option(link.title, link.getAttribute("href").split("/").pop())));
}

// One status line: connected or not, who is thinking or speaking, with which model.
function settle() {
  const open = turns.open;
  const name = open?.dataset.name;
  const silent = open && !one(".turn-text", open).textContent.trim();
  composer.lock(open ? `${name} is ${silent ? "thinking" : "speaking"}.` : "");
  const [state, text] = !connected
    ? ["failed", "Not connected. It will be tried again."]
    : open
      ? ["working", `${name} is ${silent ? "thinking" : "speaking"}`]
      : ["live", "Everything is saved"];
  live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
  const asked = open ? model : "";
  if (one("#status-model").textContent !== asked) one("#status-model").textContent = asked;
}

// A finished reply is read out once, not word by word.
function readOut(id) {
  const turn = document.getElementById(`t-${id}`);
  if (turn) one("#heard").textContent = `${turn.dataset.name}: ${one(".turn-text", turn).textContent}`;
}

function tellTrouble({ kind, error }) {
  const text = `Something in the background failed for good (${kind.replaceAll("_", " ")}).`;
  toast(text, { kind: "danger", seconds: 15, action: "Look", act: () => location.assign("/ops") });
  if (document.hidden && "Notification" in window && Notification.permission === "granted") new Notification("Coterie", { body: `${text} ${error}` });
}

// What was seen at the bottom has been read; told once in a while, not for every word.
function markRead() {
  clearTimeout(readSoon);
  readSoon = setTimeout(() => !document.hidden && turns.stuck && post(`/chats/${chat}/read`).catch(() => {}), 800);
}

async function act(name, button, turn) {
  button?.setAttribute("aria-busy", "true");
  try {
    await can[name](button, turn);
  } catch (error) {
    announceTrouble(error);
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

shortcut("/", () => one("#say").focus());
shortcut("r", () => turns.last && !turns.last.matches(".turn-you, [data-state=open]") && act("regenerate"));
shortcut("e", () => all("[data-act=edit]", one("#timeline")).at(-1)?.click());
shortcut("d", () => one("[data-toggles='#drawer']").click());
shortcut("End", () => turns.toBottom());
shortcut("ArrowLeft", () => can.swipe(-1));
shortcut("ArrowRight", () => can.swipe(1));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && turns.open && !one("dialog[open], :popover-open:not(#toasts)")) composer.stop();
});
