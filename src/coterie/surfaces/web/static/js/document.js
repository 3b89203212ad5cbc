// A document's page: the text, proposals in it and beside it, the talk, the past. What happens elsewhere is heard and shown.
import { all, on, one } from "./dom.js";
import { get, post, put } from "./api.js";
import { tellTimes } from "./app.js";
import { Cards } from "./cards.js";
import { listen } from "./live.js";
import { chooseMark, marks, showMarks } from "./marks.js";
import { reconcile } from "./reconcile.js";
import { Sheet } from "./sheet.js";
import { shortcut } from "./shortcuts.js";
import { openDialog } from "./surfaces.js";
import { Talk } from "./talk.js";
import { toast } from "./toast.js";
import { announceTrouble } from "./trouble.js";

const page = one("#draft").dataset;
const base = `/draft/workspaces/${page.workspace}`;
const path = page.path.split("/").map(encodeURIComponent).join("/");
const branch = encodeURIComponent(page.branch);
const live = one("[data-live]");
const HTML = { headers: { Accept: "text/html", "HX-Request": "true" } };
const SAYS = { saved: ["live", "Everything is saved"], typed: ["thinking", "Saved in a moment"], sending: ["thinking", "Saving …"], offline: ["offline", "Not connected. What you type is kept."] };
let connected = false;
let typing = "saved";
let besides = null; // what stands beside, as it was last told
let mine = "";
let blamed = ""; // the commit that a line was asked about

const sheet = new Sheet(one("#editor"), {
  ...page,
  extensions: marks,
  status: (state) => settle((typing = state)),
  changed: () => soon(place),
  clashed: (error, text) => clash(error, text),
});
const cards = new Cards(one("#cards"), { chosen: (id, show) => sheet.view && chooseMark(sheet.view, id, show), before: () => sheet.sync() });
const talk = new Talk({ ...page, settle: () => settle() }, sheet);

await sheet.open().catch(announceTrouble);
listen({ [page.channel]: Number(page.at) }, hear);
addEventListener("pagehide", () => sheet.leave());
if (page.thread) turnTo("talk");
talk.show(page.thread || "").catch(announceTrouble);
if (matchMedia("(max-width: 68rem)").matches && !page.thread) one("#beside-toggle").click();

function hear(message) {
  if (message.name === "open" || message.name === "lost") connected = message.name === "open";
  else if (message.name === "words") talk.words(message);
  else if (message.name === "draft") {
    if (message.sheet) sheet.sync().then(() => besides && place()).catch(announceTrouble);
    if (message.beside || message.sheet) refreshBeside();
    if (message.talk?.some((one) => one === "*" || one === talk.thread)) talk.refresh();
    if (message.talk?.length || message.beside) refreshBeside();
    if (message.notices || message.beside) refreshInbox();
    if (message.beside && !one("#past-panel").hidden) refreshPast();
  }
  settle();
}

const refreshBeside = later(async () => {
  const answer = await fetch(`${base}/beside/${path}?branch=${branch}&thread=${talk.thread}`, HTML).catch(() => null);
  if (!answer?.ok) return;
  besides = await answer.json();
  reconcile(one("#cards"), besides.cards);
  reconcile(one("#threads"), `${besides.threads}<button type="button" class="thread-tab" id="th-new" data-thread="" aria-pressed="${!talk.thread}">New</button>`);
  one("#waiting").textContent = besides.waiting || "";
  cards.fetched();
  tellTimes(one("#cards"));
  place();
});

const refreshPast = later(async () => {
  const answer = await fetch(`${base}/past/${path}?branch=${branch}`, HTML).catch(() => null);
  if (!answer?.ok) return;
  one("#past").innerHTML = await answer.text();
  for (const row of all(".past-row", one("#past"))) row.toggleAttribute("aria-current", row.dataset.commit === blamed);
  tellTimes(one("#past"));
});

const refreshInbox = later(async () => {
  const unread = (await get("/draft/inbox?unread=true").catch(() => [])).length;
  if (unread) one("#inbox").dataset.unread = unread > 9 ? "9+" : unread;
  else delete one("#inbox").dataset.unread;
}, 250);

// Marks are about a number of the sheet; if this page is not there yet, they are drawn once it is.
function place() {
  const mapping = besides && sheet.mapping(besides.epoch, besides.version);
  if (mapping) showMarks(sheet.view, besides, mapping);
  else if (besides && besides.epoch !== sheet.epoch) sheet.sync();
}

function soon(act) {
  clearTimeout(soon.timer);
  soon.timer = setTimeout(act, 120);
}

// Asked for often, done one after another, and once more if something came meanwhile.
function later(act, wait = 30) {
  let running = null;
  let again = false;
  const run = async () => {
    do {
      again = false;
      await new Promise((done) => setTimeout(done, wait));
      await act();
    } while (again);
    running = null;
  };
  return () => {
    again = true;
    return (running ??= run());
  };
}

function settle() {
  const open = talk?.open;
  const [state, text] = !connected && typing !== "offline" ? ["offline", "Not connected. It will be tried again."] : open && typing === "saved" ? ["thinking", `${open.dataset.name} is writing`] : SAYS[typing];
  live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
}

function clash(error, text) {
  mine = text;
  one("#difference").textContent = error.difference ?? text;
  openDialog(one("#clash"));
}

// --- beside: which panel, which card, which thread ----------------------------------------------------------------

function turnTo(name) {
  if (one("#beside").hidden) one("#beside-toggle").click();
  const tab = one(`#${name}-tab`);
  if (tab.getAttribute("aria-selected") !== "true") tab.click();
  if (name === "past") refreshPast();
}

function showCard(id) {
  turnTo("cards");
  cards.choose(id);
}

async function showThread(id) {
  turnTo("talk");
  await talk.show(id);
}

async function act(name, ...told) {
  try {
    await DO[name](...told);
  } catch (error) {
    announceTrouble(error);
  }
}

const DO = {
  accept: (id) => cards.accept(id),
  decline: (id) => cards.decline(id),
  edit: (id) => cards.edit(id),
  undo: (id) => cards.undo(id),
  repropose: (id) => cards.repropose(id),
  talk: (id) => showThread(cards.card(id).dataset.thread),
  about: () => {
    const { from, to } = sheet.view.state.selection.main;
    if (from === to) return;
    const text = sheet.view.state.sliceDoc(from, to);
    talk.pick({ from, to, text: text.length > 160 ? `${text.slice(0, 159)}…` : text });
    one("#pick").hidden = true;
    turnTo("talk");
    one("#say").focus();
  },
  "drop-pick": () => talk.pick(null),
  blame: async () => {
    await sheet.sync();
    const line = sheet.view.state.doc.lineAt(sheet.view.state.selection.main.head).number;
    await post(`${base}/flush/${path}?branch=${branch}`);
    const found = await get(`${base}/blame?document=${encodeURIComponent(page.path)}&line=${line}&branch=${branch}`);
    if (!found) return toast("This line is not committed yet.", { seconds: 4 });
    blamed = found.commit;
    turnTo("past");
    await refreshPast();
    const row = document.getElementById(`p-${blamed}`);
    row?.scrollIntoView({ block: "center" });
    row?.focus({ preventScroll: true });
  },
  "accept-all": async () => {
    if (!talk.thread) return toast("Open a thread first.", { seconds: 3 });
    await sheet.sync();
    const done = await post(`/draft/threads/${talk.thread}/accept`);
    toast(`Accepted ${done.length} ${done.length === 1 ? "proposal" : "proposals"}, one commit each.`, { kind: "success" });
  },
  "take-theirs": async () => {
    one("#clash").close();
    await sheet.takeTheirs();
    place();
  },
  "copy-mine": async () => {
    await navigator.clipboard.writeText(mine);
    toast("Copied.", { seconds: 2 });
  },
};

on("click", ".proposal [data-act]", (_, button) => {
  const id = button.closest(".proposal").dataset.change;
  cards.current = id;
  act(button.dataset.act, id);
});
on("click", ".proposal", (event, card) => !event.target.closest("button, form, textarea, a") && cards.choose(card.dataset.change));
on("click", "[data-do]", (_, button) => act(button.dataset.do));
on("click", ".thread-tab", (_, tab) => showThread(tab.dataset.thread).catch(announceTrouble));
on("click", ".past [data-thread]", (_, button) => showThread(button.dataset.thread).catch(announceTrouble));
on("click", ".said-proposal", (_, button) => showCard(button.dataset.card));
on("click", "#past-tab", () => refreshPast());
// Somebody who clicks into the text wants to write there: the card is shown, and the text keeps the focus.
document.addEventListener("card", (event) => {
  if (one("#beside").hidden) return cards.choose(event.detail, { focus: false, show: false });
  turnTo("cards");
  cards.choose(event.detail, { focus: false, point: false });
  sheet.view.focus();
});
document.addEventListener("about", (event) => {
  if (!one("#beside").hidden && sheet.view.state.selection.main.empty) showThread(event.detail).then(() => sheet.view.focus(), announceTrouble);
});

one("#watch").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  const watching = button.getAttribute("aria-pressed") !== "true";
  try {
    await put(`${base}/watch`, { document: page.path, watching });
    button.setAttribute("aria-pressed", String(watching));
    button.setAttribute("aria-label", watching ? "Watching" : "Watch");
    toast(watching ? "You will be told of what is said here." : "You are not told any more.", { seconds: 3 });
  } catch (error) {
    announceTrouble(error);
  }
});
one("#branch").addEventListener("change", (event) => location.assign(`?branch=${encodeURIComponent(event.target.value)}`));
one("#branch-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = one("#branch-name").value.trim();
  try {
    await sheet.sync();
    await post(`${base}/flush/${path}?branch=${branch}`);
    await post(`${base}/branches`, { name, source: page.branch });
    location.assign(`?branch=${encodeURIComponent(name)}`);
  } catch (error) {
    announceTrouble(error);
  }
});

// What can be done with chosen words, where they are.
document.addEventListener("selectionchange", () => {
  const view = sheet.view;
  if (!view?.hasFocus) return;
  requestAnimationFrame(() => {
    const { from, to, empty } = view.state.selection.main;
    const at = empty ? null : view.coordsAtPos(to, -1);
    const pick = one("#pick");
    pick.hidden = !at || to - from < 2;
    if (pick.hidden) return;
    const frame = one(".draft-main").getBoundingClientRect();
    pick.style.top = `${Math.min(at.bottom - frame.top + 6, frame.height - 56)}px`;
    pick.style.left = `${Math.max(8, Math.min(at.left - frame.left - 60, frame.width - 240))}px`;
  });
});

shortcut("j", () => (turnTo("cards"), cards.step(1)));
shortcut("k", () => (turnTo("cards"), cards.step(-1)));
shortcut("a", () => act("accept"));
shortcut("d", () => act("decline"));
shortcut("e", () => act("edit"));
shortcut("u", () => act("undo"));
shortcut("b", () => act("blame"));
shortcut("i", () => sheet.view.focus());
shortcut("/", () => (turnTo("talk"), one("#say").focus()));
one("#editor").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  sheet.view.contentDOM.blur();
  (cards.card(cards.current) ?? one("#cards-panel")).focus({ preventScroll: true });
});
