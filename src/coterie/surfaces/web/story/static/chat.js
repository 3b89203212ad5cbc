// The chat page: shows live updates and sends actions.
import { all, nodes, on, one } from "../shared/dom.js";
import { turnActions } from "./turn_actions.js";
import { api, get, post, put, remove } from "../shared/api.js";
import { Completion } from "./completion.js";
import { Composer } from "../shared/composer.js";
import { parseCommand, slashCommands } from "./slash_commands.js";
import { MessagePictures } from "./message_pictures.js";
import { openDialog } from "../shared/dialogs.js";
import { StatePanel } from "./state_panel.js";
import { listen } from "../shared/live_updates.js";
import { shortcut } from "../shared/shortcuts.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { Timeline } from "./timeline.js";
import { t } from "../shared/messages.js";

const page = one("#chat");
const chat = page.dataset.chat;
const at = Number(page.dataset.at);
const turns = new Timeline(chat, one("#scroll"), one("#timeline"));
const composer = new Composer(`draft:${chat}`, {
  say: (text, key, form, reply) => pictures.sent((ids) => post(`/chats/${chat}/turns`, { text, key, reply, speaker: form.elements.speaker.value || null, pictures: ids })),
  attached: () => pictures.ids.length > 0,
  stop: () => post(`/chats/${chat}/stop`),
  intercept: (text) => {
    const command = parseCommand(text, commands);
    return command && Promise.resolve(command.run(command.rest));
  },
});
const pictures = new MessagePictures(chat, composer);
const drawer = new StatePanel(chat);
const can = {
  ...turnActions(chat, turns),
  pin: (button) => drawer.pin(button),
  forget: (button) => drawer.forget(button),
  suggest: () => suggest(composer.field.value.trim()),
  background: (button) => drawer.chooseBackground(button.dataset.place),
  "no-background": (button) => drawer.setBackground(button.dataset.place, ""),
  "add-picture": () => pictures.choose(),
  "remove-picture": (button) => pictures.remove(button.dataset.picture),
  "send-only": () => composer.send({ reply: false }),
  "quick-reply": (button) => quickReply(button),
  "edit-quick-replies": () => editQuickReplies(),
};
const commands = slashCommands({
  run: (name) => can[name](),
  onLast: (name) => can[name](null, turns.last.dataset.turn),
  reply: async (name) => post(`/chats/${chat}/reply`, { speaker: name.replace(/^@/, "") || null }),
  suggest: (beginning) => suggest(beginning),
  sendOnly: (text) => post(`/chats/${chat}/turns`, { text, reply: false }),
  editLast: (text) => api("PATCH", `/chats/${chat}/turns/${turns.last.dataset.turn}`, { text }),
  drawer: (field, value) => api("PATCH", `/chats/${chat}/drawer`, { edits: [{ field, value }] }),
  invite: async (name) => post(`/chats/${chat}/guests`, { character: await characterId(name) }),
  removeGuest: async (name) => remove(`/chats/${chat}/guests/${await characterId(name)}`),
});
new Completion(composer.field, {
  commands: () => Object.entries(commands).map(([name, [hint]]) => ({ name, hint })),
  names: () => all(".chat-cast a", one("#chat-head")).map((link) => link.title),
});
const live = one("[data-live]");
const GUESTS = ["guest_joined", "guest_left"];
const HEAD = [...GUESTS, "manual_edit", "scene_opened", "clock_moved", "activity_change"];
const SCENERY = [...GUESTS, "manual_edit", "scene_opened", "activity_change"];
let connected = false;
let model = "";
let menuTurn = "";
let headTimer = 0;
let headCast = false; // whether the next head has other people
let sceneryTimer = 0;
let readTimer = 0;

listen({ [chat]: at, instance: at }, onMessage);
updateStatus();
markRead();
if (location.hash === "#write") {
  history.replaceState(null, "", location.pathname); // a new chat
  if (matchMedia("(hover: hover)").matches) composer.field.focus({ preventScroll: true });
}

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
    if (message.gone) return leave();
    turns.replace(message);
    drawer.refresh();
    refreshHead();
    refreshScenery();
  } else if (message.name === "removed") turns.removed(message);
  else if (message.name === "notice") turns.notice(message);
  else if (message.name === "changed") onChange(message);
  else if (message.name === "job-failed") showFailedJob(message);
  updateStatus();
}

function onChange({ kind, model: name }) {
  if (kind === "prompt_sent") model = name;
  if (HEAD.includes(kind)) refreshHead(GUESTS.includes(kind));
  if (SCENERY.includes(kind)) refreshScenery();
  drawer.refresh();
}

// The chat is empty or gone: after a reset its page says how it begins again, after a deletion there is none.
async function leave() {
  const answer = await fetch(`/chats/${chat}`, { headers: { Accept: "text/html" } }).catch(() => null);
  location.assign(answer?.ok ? `/chats/${chat}` : "/chats");
}

function refreshScenery() {
  clearTimeout(sceneryTimer);
  sceneryTimer = setTimeout(async () => {
    const answer = await fetch(`/chats/${chat}/scenery`, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const made = nodes(await answer.text());
    if (made.firstElementChild.innerHTML !== one("#scenery").innerHTML) one("#scenery").replaceWith(made);
  }, 150);
}

function refreshHead(cast) {
  clearTimeout(headTimer);
  headCast ||= cast;
  headTimer = setTimeout(async () => {
    const answer = await fetch(`/chats/${chat}/head`, { headers: { Accept: "text/html", "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const head = nodes(await answer.text());
    const menu = one("#chat-head :popover-open");
    if (menu) return menu.addEventListener("toggle", () => refreshHead(), { once: true }); // when it is closed
    one("#chat-head").replaceWith(head);
    if (headCast) refreshWho();
    headCast = false;
  }, 150);
}

function refreshWho() {
  const cast = all(".chat-cast a", one("#chat-head"));
  one("#who").hidden = cast.length < 2;
  const select = one("#who select");
  select.replaceChildren(new Option(t("Auto"), ""), ...cast.map((link) => new Option(link.title, link.getAttribute("href").split("/").pop())));
}

// Status line: connection, who is replying, and with which model.
function updateStatus() {
  const open = turns.open;
  const name = open?.dataset.name;
  const silent = open && !one(".turn-text", open).textContent.trim();
  composer.lock(!open ? "" : silent ? t("{name} is thinking.", { name }) : t("{name} is speaking.", { name }));
  const [state, text] = !connected
    ? ["failed", t("Not connected. It will be tried again.")]
    : open
      ? ["working", silent ? t("{name} is thinking", { name }) : t("{name} is speaking", { name })]
      : ["live", t("Saved")];
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
  const text = t("A background job failed ({job}).", { job: kind.replaceAll("_", " ") });
  toast(text, { kind: "danger", seconds: 15, action: t("Show"), act: () => location.assign("/ops") });
  if (document.hidden && "Notification" in window && Notification.permission === "granted") new Notification("Coterie", { body: `${text} ${error}` });
}

// Turns visible at the bottom count as read; reported at most every 800 ms.
function markRead() {
  clearTimeout(readTimer);
  readTimer = setTimeout(() => !document.hidden && turns.stuck && post(`/chats/${chat}/read`).catch(() => {}), 800);
}

// A draft of your next message, which you can change before you send it.
async function suggest(beginning) {
  const writing = toast(t("Writing a draft …"), { seconds: 120 });
  try {
    const { text } = await post(`/chats/${chat}/suggestion`, { beginning });
    composer.write(beginning ? `${beginning} ${text}` : text);
  } finally {
    writing();
  }
}

function quickReply(button) {
  const written = composer.field.value.trim();
  const text = written ? `${written} ${button.dataset.text}` : button.dataset.text;
  const sends = "send" in button.dataset;
  composer.write(sends ? text : `${text} `);
  if (sends) return composer.send();
}

async function editQuickReplies() {
  const replies = await get("/quick-replies");
  one("#quick-replies-lines").value = replies.map(({ label, text, send }) => `${label}${send ? ": " : ":: "}${text}`).join("\n");
  openDialog(one("#quick-replies-dialog"));
}

one("#quick-replies-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const lines = one("#quick-replies-lines").value.split("\n").map((line) => line.match(/^\s*([^:]+?)\s*(::?)\s*(.+?)\s*$/)).filter(Boolean);
  const replies = lines.map(([, label, colons, text]) => ({ label, text, send: colons === ":" }));
  try {
    await put("/quick-replies", { replies });
    location.reload();
  } catch (error) {
    showError(error);
  }
});

async function characterId(name) {
  const wanted = name.replace(/^@/, "").toLowerCase();
  const found = (await get("/characters")).find((one) => one.name.toLowerCase().startsWith(wanted));
  if (!wanted || !found) throw new Error(t("There is no character {name}.", { name }));
  return found.id;
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
  can.prepareMenu(menu, turn);
  menu.togglePopover();
});
one("#composer").addEventListener("said", () => turns.toBottom());

shortcut("/", () => one("#message-field").focus());
shortcut("r", () => turns.last && !turns.last.matches(".turn-you, [data-state=open]") && act("regenerate"));
shortcut("e", () => all("[data-act=edit]", one("#timeline")).at(-1)?.click());
shortcut("c", () => act("continue"));
shortcut("n", () => act("add-reply"));
shortcut("w", () => act("suggest"));
shortcut("b", () => turns.last && act("bookmark", null, turns.last.dataset.turn));
shortcut("d", () => one("[data-toggles='#drawer']").click());
shortcut("End", () => turns.toBottom());
shortcut("ArrowLeft", () => can.swipe(-1));
shortcut("ArrowRight", () => can.swipe(1));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && turns.open && !one("dialog[open], :popover-open:not(#toasts)")) composer.stop();
});
