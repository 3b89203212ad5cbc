// The page of a document: editor, proposals, discussion threads and history, kept current by live updates.
import { all, escaped, on, one } from "../shared/dom.js";
import { get, post, put } from "../shared/api.js";
import { formatTimes } from "../shared/app.js";
import { Proposals } from "./proposals.js";
import { listen } from "../shared/live_updates.js";
import { chooseMark, marks, showMarks } from "./proposal_marks.js";
import { reconcile } from "../shared/reconcile.js";
import { LiveDocument } from "./live_document.js";
import { shortcut } from "../shared/shortcuts.js";
import { openDialog } from "../shared/dialogs.js";
import { startSharing } from "./sharing.js";
import { ThreadPanel } from "./thread.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { plural, t } from "../shared/messages.js";

const page = one("#draft").dataset;
const base = `/draft/workspaces/${page.workspace}`;
const path = page.path.split("/").map(encodeURIComponent).join("/");
const branch = encodeURIComponent(page.branch);
const live = one("[data-live]");
const HTML = { headers: { Accept: "text/html", "HX-Request": "true" } };
const STATUS = { saved: ["live", t("Saved")], typed: ["thinking", t("Saving soon")], sending: ["thinking", t("Saving …")], offline: ["offline", t("Not connected. What you type is kept.")] };
let connected = false;
let typing = "saved";
let sidebar = null; // the sidebar's data as last fetched
let mine = ""; // the text of a conflicting edit
let blamedCommit = ""; // the commit of the line whose origin is shown

const editor = new LiveDocument(one("#editor"), {
  ...page,
  extensions: marks,
  status: (state) => updateStatus((typing = state)),
  changed: () => debounce(drawMarks),
  clashed: (error, text) => clash(error, text),
});
const proposals = new Proposals(one("#cards"), { chosen: (id, show) => editor.view && chooseMark(editor.view, id, show), before: () => editor.sync() });
const threadPanel = new ThreadPanel({ ...page, updateStatus: () => updateStatus() }, editor);

startSharing({ base, path, branch: page.branch });
await editor.open().catch(showError);
listen({ [page.channel]: Number(page.at) }, onMessage);
addEventListener("pagehide", () => editor.leave());
if (page.thread) openTab("thread");
threadPanel.show(page.thread || "").catch(showError);
if (matchMedia("(max-width: 68rem)").matches && !page.thread) one("#sidebar-toggle").click();

function onMessage(message) {
  if (message.name === "open" || message.name === "lost") connected = message.name === "open";
  else if (message.name === "words") threadPanel.showWords(message);
  else if (message.name === "document") {
    if (message.document) editor.sync().then(() => sidebar && drawMarks()).catch(showError);
    if (message.sidebar || message.document) refreshSidebar();
    if (message.threads?.some((one) => one === "*" || one === threadPanel.thread)) threadPanel.refresh();
    if (message.threads?.length || message.sidebar) refreshSidebar();
    if (message.notifications || message.sidebar) refreshInbox();
    if (message.sidebar && !one("#history-panel").hidden) refreshHistory();
  }
  updateStatus();
}

const refreshSidebar = serialised(async () => {
  const answer = await fetch(`${base}/sidebar/${path}?branch=${branch}&thread=${threadPanel.thread}`, HTML).catch(() => null);
  if (!answer?.ok) return;
  sidebar = await answer.json();
  reconcile(one("#cards"), sidebar.cards);
  reconcile(one("#threads"), `${sidebar.threads}<button type="button" class="thread-tab" id="th-new" data-thread="" aria-pressed="${!threadPanel.thread}">${escaped(t("New"))}</button>`);
  one("#waiting").textContent = sidebar.waiting || "";
  proposals.fetched();
  formatTimes(one("#cards"));
  drawMarks();
});

const refreshHistory = serialised(async () => {
  const answer = await fetch(`${base}/history/${path}?branch=${branch}`, HTML).catch(() => null);
  if (!answer?.ok) return;
  one("#history").innerHTML = await answer.text();
  for (const row of all(".history-row", one("#history"))) row.toggleAttribute("aria-current", row.dataset.commit === blamedCommit);
  formatTimes(one("#history"));
});

const refreshInbox = serialised(async () => {
  if (!one("#inbox")) return; // a guest has none
  const unread = (await get("/draft/inbox?unread=true").catch(() => [])).length;
  if (unread) one("#inbox").dataset.unread = unread > 9 ? "9+" : unread;
  else delete one("#inbox").dataset.unread;
}, 250);

// Marks refer to a version of the document; they are drawn once the editor has reached it.
function drawMarks() {
  const mapping = sidebar && editor.mapping(sidebar.epoch, sidebar.version);
  if (mapping) showMarks(editor.view, sidebar, mapping);
  else if (sidebar && sidebar.epoch !== editor.epoch) editor.sync();
}

function debounce(act) {
  clearTimeout(debounce.timer);
  debounce.timer = setTimeout(act, 120);
}

// Serialises calls of `act`; a call during a run causes one more run.
function serialised(act, wait = 30) {
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

function updateStatus() {
  const open = threadPanel?.open;
  const [state, text] = !connected && typing !== "offline" ? ["offline", t("Not connected. It will be tried again.")] : open && typing === "saved" ? ["thinking", t("{name} is writing", { name: open.dataset.name })] : STATUS[typing];
  live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
}

function clash(error, text) {
  mine = text;
  one("#difference").textContent = error.difference ?? text;
  openDialog(one("#clash"));
}

// --- sidebar ------------------------------------------------------------------------------------------------------

function openTab(name) {
  if (one("#sidebar").hidden) one("#sidebar-toggle").click();
  const tab = one(`#${name}-tab`);
  if (tab.getAttribute("aria-selected") !== "true") tab.click();
  if (name === "history") refreshHistory();
}

function showCard(id) {
  openTab("cards");
  proposals.choose(id);
}

async function showThread(id) {
  openTab("thread");
  await threadPanel.show(id);
}

async function act(name, ...data) {
  try {
    await ACTIONS[name](...data);
  } catch (error) {
    showError(error);
  }
}

const ACTIONS = {
  accept: (id) => proposals.accept(id),
  decline: (id) => proposals.decline(id),
  edit: (id) => proposals.edit(id),
  undo: (id) => proposals.undo(id),
  repropose: (id) => proposals.repropose(id),
  talk: (id) => showThread(proposals.card(id).dataset.thread),
  about: () => {
    const { from, to } = editor.view.state.selection.main;
    if (from === to) return;
    const text = editor.view.state.sliceDoc(from, to);
    threadPanel.setSelection({ from, to, text: text.length > 160 ? `${text.slice(0, 159)}…` : text });
    one("#selection-actions").hidden = true;
    openTab("thread");
    one("#message-field")?.focus();
  },
  "drop-pick": () => threadPanel.setSelection(null),
  blame: async () => {
    await editor.sync();
    const line = editor.view.state.doc.lineAt(editor.view.state.selection.main.head).number;
    await post(`${base}/flush/${path}?branch=${branch}`);
    const origin = await get(`${base}/blame?document=${encodeURIComponent(page.path)}&line=${line}&branch=${branch}`);
    if (!origin) return toast(t("This line is not committed yet."), { seconds: 4 });
    blamedCommit = origin.commit;
    openTab("history");
    await refreshHistory();
    const row = document.getElementById(`p-${blamedCommit}`);
    row?.scrollIntoView({ block: "center" });
    row?.focus({ preventScroll: true });
  },
  "accept-all": async () => {
    if (!threadPanel.thread) return toast(t("Open a thread first."), { seconds: 3 });
    await editor.sync();
    const done = await post(`/draft/threads/${threadPanel.thread}/accept`);
    toast(plural("Accepted {count} proposal, one commit each.", "Accepted {count} proposals, one commit each.", done.length), { kind: "success" });
  },
  "take-theirs": async () => {
    one("#clash").close();
    await editor.reload();
    drawMarks();
  },
  "copy-mine": async () => {
    await navigator.clipboard.writeText(mine);
    toast(t("Copied."), { seconds: 2 });
  },
};

on("click", ".proposal [data-act]", (_, button) => {
  const id = button.closest(".proposal").dataset.change;
  proposals.current = id;
  act(button.dataset.act, id);
});
on("click", ".proposal", (event, card) => !event.target.closest("button, form, textarea, a") && proposals.choose(card.dataset.change));
on("click", "[data-do]", (_, button) => act(button.dataset.do));
on("click", ".thread-tab", (_, tab) => showThread(tab.dataset.thread).catch(showError));
on("click", ".history [data-thread]", (_, button) => showThread(button.dataset.thread).catch(showError));
on("click", ".message-proposal", (_, button) => showCard(button.dataset.card));
on("click", "#history-tab", () => refreshHistory());
// A click on a mark in the text shows its card, but the editor keeps the focus.
document.addEventListener("card", (event) => {
  if (one("#sidebar").hidden) return proposals.choose(event.detail, { focus: false, show: false });
  openTab("cards");
  proposals.choose(event.detail, { focus: false, point: false });
  editor.view.focus();
});
document.addEventListener("about", (event) => {
  if (!one("#sidebar").hidden && editor.view.state.selection.main.empty) showThread(event.detail).then(() => editor.view.focus(), showError);
});

one("#watch")?.addEventListener("click", async (event) => {
  const button = event.currentTarget;
  const watching = button.getAttribute("aria-pressed") !== "true";
  try {
    await put(`${base}/watch`, { document: page.path, watching });
    button.setAttribute("aria-pressed", String(watching));
    button.setAttribute("aria-label", watching ? t("Watching") : t("Watch"));
    toast(watching ? t("Watching: you get notifications for this document.") : t("No longer watching."), { seconds: 3 });
  } catch (error) {
    showError(error);
  }
});
one("#branch")?.addEventListener("change", (event) => location.assign(`?branch=${encodeURIComponent(event.target.value)}`));
one("#branch-form")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = one("#branch-name").value.trim();
  try {
    await editor.sync();
    await post(`${base}/flush/${path}?branch=${branch}`);
    await post(`${base}/branches`, { name, source: page.branch });
    location.assign(`?branch=${encodeURIComponent(name)}`);
  } catch (error) {
    showError(error);
  }
});

// Actions for the selected text, shown beside the selection.
document.addEventListener("selectionchange", () => {
  const view = editor.view;
  if (!view?.hasFocus) return;
  requestAnimationFrame(() => {
    const { from, to, empty } = view.state.selection.main;
    const at = empty ? null : view.coordsAtPos(to, -1);
    const actions = one("#selection-actions");
    actions.hidden = !at || to - from < 2;
    if (actions.hidden) return;
    const frame = one(".draft-main").getBoundingClientRect();
    actions.style.top = `${Math.min(at.bottom - frame.top + 6, frame.height - 56)}px`;
    actions.style.left = `${Math.max(8, Math.min(at.left - frame.left - 60, frame.width - 240))}px`;
  });
});

shortcut("j", () => (openTab("cards"), proposals.step(1)));
shortcut("k", () => (openTab("cards"), proposals.step(-1)));
shortcut("a", () => act("accept"));
shortcut("d", () => act("decline"));
shortcut("e", () => act("edit"));
shortcut("u", () => act("undo"));
shortcut("b", () => act("blame"));
shortcut("i", () => editor.view.focus());
shortcut("/", () => (openTab("thread"), one("#message-field")?.focus()));
one("#editor").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  editor.view.contentDOM.blur();
  (proposals.card(proposals.current) ?? one("#cards-panel")).focus({ preventScroll: true });
});
