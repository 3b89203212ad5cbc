// A crowd room: chat, stream, members, moderation and what-if replay.
import { all, nodes, on, one } from "../shared/dom.js";
import { api, post } from "../shared/api.js";
import { shortcut } from "../shared/shortcuts.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { LiveRoom } from "./live_room.js";
import { lines } from "./chat_line.js";
import { context, trends } from "./stream.js";
import { VirtualList } from "../shared/virtual_list.js";
import { plural, t } from "../shared/messages.js";

const crowd = one("#crowd");
const room = crowd.dataset.room;
const base = `/crowd/${encodeURIComponent(room)}`;
const details = one("#crowd-message");
const draw = lines({ hues: JSON.parse(crowd.dataset.hues), emotes: JSON.parse(crowd.dataset.emotes), you: crowd.dataset.you });
const list = new VirtualList(one("#crowd-scroll"), one("#crowd-space"), one("#crowd-window"), draw);

let behind = 0;
let reply = null;
let fetching = false;

// ── the chat ──
function onMessage(data) {
  if (data.type === "snapshot") {

    list.replace(data.messages);
  } else {
    const known = list.length ? list.at(list.length - 1).number : 0;
    list.append(data.messages.filter(({ number }) => number > known));
    if (!list.sticks) behind += data.messages.length;
  }
  tally();
}

// A moderator deleted a message: its text is gone for readers.
function remove(id) {
  for (let index = list.length - 1; index >= 0; index--) {
    if (list.at(index).id !== id) continue;
    Object.assign(list.at(index), { text: "[deleted by a moderator]", mentions: [], emotes: [] });
    list.redraw();
    return;
  }
}

function tally() {
  const last = list.length ? list.at(list.length - 1).number : 0;
  one("#crowd-count").textContent = last ? plural("{count} messages", "{count} messages", last, { count: last.toLocaleString() }) : "";
  one("#crowd-empty").hidden = list.length > 0;
  const pill = one("#crowd-pill");
  pill.hidden = list.sticks;
  one("span", pill).textContent = behind ? plural("{count} new", "{count} new", behind, { count: behind.toLocaleString() }) : t("Latest");
}

list.onstick = (sticks) => {
  if (sticks) behind = 0;
  tally();
};
on("click", "#crowd-pill", () => list.toEnd());
shortcut("End", () => list.toEnd());
shortcut("/", () => one("#crowd-line").focus());

one("#crowd-scroll").addEventListener("scroll", async (event) => {
  const first = list.length ? list.at(0).number : 1;
  if (event.target.scrollTop > 600 || fetching || first <= 1) return;
  fetching = true;
  try {
    const older = await api("GET", `${base}/messages?before=${first}&limit=500`);
    if (older.length && list.at(0).number === first) list.prepend(older);
  } catch (error) {
    showError(error);
  } finally {
    fetching = false;
  }
}, { passive: true });

on("submit", "#crowd-composer", async (event, form) => {
  event.preventDefault();
  const field = one("#crowd-line");
  const text = field.value.trim();
  if (!text) return;
  const refused = one("#crowd-error");
  refused.hidden = true;
  try {
    await post(`${base}/messages`, { text, ...(reply ? { reply_to: reply } : {}) });
    field.value = "";
    answer(null);
    list.toEnd();
  } catch (error) {
    Object.assign(refused, { hidden: false, textContent: error.message });
  }
});

function answer(id, name = "") {
  reply = id;
  const note = one("#crowd-reply-to");
  note.hidden = !id;
  note.textContent = id ? t("Answering {name}", { name }) : "";
  if (id) {
    const field = one("#crowd-line");
    field.value = `@${name} ${field.value.replace(/^@\S+\s*/, "")}`;
    field.focus();
  }
}
on("keydown", "#crowd-line", (event) => event.key === "Escape" && answer(null));

/** Loads a fragment into an element; of several requests the last one wins. */
function filler(place) {
  let asked = 0;
  return async (path) => {
    const mine = ++asked;
    const text = await (await fetch(base + path)).text();
    if (mine === asked) place.replaceChildren(nodes(text));
  };
}

// ── one message ──
const fillMessage = filler(details);
async function showMessage(number) {
  await fillMessage(`/messages/${number}`);
  details.hidden = false;
  formatTimes(details);
  if (list.sticks) list.toEnd();
}
on("click", ".crowd-window .line", (_, row) => showMessage(row.dataset.number));
on("keydown", "#crowd-scroll", async (event) => {
  if (event.key !== "Enter" || !list.length) return;
  await showMessage(list.at(list.length - 1).number);
  one("button", details)?.focus();
});
on("click", "[data-message-step]", async (_, button) => {
  const label = button.getAttribute("aria-label");
  await showMessage(Math.max(1, Number(button.dataset.messageStep)));
  one(`[aria-label="${label}"]`, details)?.focus();
});
on("click", "[data-message-close]", () => {
  details.hidden = true;
  one("#crowd-scroll").focus();
});
on("click", "[data-reply]", (_, button) => answer(button.dataset.reply, button.dataset.replyName));

// ── members ──
const members = one("#crowd-members");
const fillMembers = filler(members);
const show = (path) => fillMembers(`/people${path}`);
const lookAt = (name) => show(`/${encodeURIComponent(name)}`);
on("click", "#crowd-people-tab", () => one(".members, .person", members) ?? show(""));
on("click", "[data-everybody]", () => show(""));
on("click", "[data-member]", (_, button) => {
  one("#crowd-people-tab").click();
  lookAt(button.dataset.member);
});
on("click", "[data-revert]", async (_, button) => {
  const name = button.closest("[data-person]").dataset.person;
  await attempt(() => post(`${base}/people/${name}/revert`, { to: Number(button.dataset.revert) }), t("{name} is as they were then, from the next session on.", { name }));
  lookAt(name);
});
on("click", "[data-freeze]", async (_, button) => {
  const name = button.closest("[data-person]").dataset.person;
  const frozen = button.dataset.freeze === "true";
  await attempt(() => post(`${base}/people/${name}/freeze`, { frozen }), frozen ? t("{name} stays as they are.", { name }) : t("{name} may change again.", { name }));
});

on("click", "[data-meets]", async (_, button) => {
  try {
    const character = await post(`/crowd/personas/${button.dataset.meets}/meet`);
    location.assign(`/characters/${encodeURIComponent(character.id)}`);
  } catch (error) {
    showError(error);
  }
});

// ── moderation ──
const rule = (data, saying, undo) => attempt(() => post(`${base}/rulings`, data), saying, undo);
on("click", "[data-rules]", (_, button) => {
  const { rules: what, who } = button.dataset;
  const back = what === "pardon" ? null : () => rule({ what: "pardon", who }, t("{name} may speak again.", { name: who }));
  const said = { timeout: t("{name} is timed out for a minute.", { name: who }), ban: t("{name} is banned.", { name: who }), pardon: t("{name} may speak again.", { name: who }) };
  rule({ what, who, ...(what === "timeout" ? { seconds: 60 } : {}) }, said[what], back);
});
on("change", "[data-ruling]", (_, field) => {
  const what = field.dataset.ruling;
  if (what === "slow") return rule({ what, seconds: Number(field.value) }, Number(field.value) ? t("Slow mode: {seconds} s.", { seconds: field.value }) : t("Slow mode is off."));
  if (what === "followers") return rule({ what, on: field.checked }, field.checked ? t("Followers only.") : t("Everybody may chat."));
  return rule({ what: field.checked ? "kill" : "revive" }, field.checked ? t("The room is switched off.") : t("The room is on again."));
});

async function attempt(act, saying, undo = null) {
  try {
    await act();
    toast(saying, { seconds: 5, ...(undo ? { action: t("Undo"), act: undo } : {}) });
  } catch (error) {
    showError(error);
  }
}

// ── what if ──
const whatIf = one("#what-if-form");
const resetTraits = () => {
  for (const [trait, value] of Object.entries(JSON.parse(whatIf.dataset.traits)[whatIf.elements.persona.value])) {
    const slider = whatIf.elements[trait];
    slider.value = value;
    one("output", slider.parentElement).value = slider.value;
  }
  whatIf.elements.voice.value = JSON.parse(whatIf.dataset.voices)[whatIf.elements.persona.value] ?? "";
};
whatIf.elements.persona.addEventListener("change", resetTraits);
resetTraits();
on("submit", "#what-if-form", async (event, form) => {
  event.preventDefault();
  const button = one("button[type=submit]", form);
  const data = Object.fromEntries(new FormData(form));
  for (const trait of Object.keys(JSON.parse(form.dataset.traits)[data.persona])) data[trait] = Number(data[trait]);
  button.disabled = true;
  try {
    one("#what-if-result").innerHTML = await post(`${base}/what-if`, data);
  } catch (error) {
    showError(error);
  } finally {
    button.disabled = false;
  }
});

// ── sessions ──
on("submit", "#crowd-start-form", async (event, form) => {
  event.preventDefault();
  const data = Object.fromEntries(new FormData(form));
  await attempt(async () => {
    await post(`${base}/start`, data);
    form.closest("dialog").close();
  }, t("Session started."));
});
on("click", "#crowd-stop-button", () => attempt(() => post(`${base}/stop`), t("Session stopped.")));

function state(data) {
  const badge = one("#crowd-state");
  badge.dataset.state = data.state;
  badge.textContent = { quiet: t("stopped"), waking: t("loading the model"), live: t("live") }[data.state];
  one("#crowd-start-button").hidden = data.state !== "quiet";
  one("#crowd-stop-button").hidden = data.state === "quiet";
  one("#crowd-pace").textContent = plural("{count} members", "{count} members", data.personas.length);
  const problem = [data.error, data.config_error].filter(Boolean).join(" ");
  Object.assign(one("#crowd-problem"), { hidden: !problem, textContent: problem });
}

function formatTimes(within) {
  for (const time of all("time[data-ms]", within)) time.textContent = new Date(Number(time.dataset.ms)).toLocaleTimeString();
}
document.addEventListener("htmx:after:swap", () => formatTimes(document));
formatTimes(document);

let audited = 0;
new LiveRoom(
  room,
  (name, data) => {
    if (name === "frame") onMessage(data);
    else if (name === "context") context(data);
    else if (name === "trends") trends(data);
    else if (name === "state") state(data);
    else if (name === "deleted") remove(data.id);
    else if (name === "audit") {
      clearTimeout(audited);
      audited = setTimeout(() => one("#crowd-audit").dispatchEvent(new Event("audited")), 300);
    }
  },
  (up) => {
    const live = one("[data-live]");
    live.dataset.state = up ? "live" : "offline";
    live.textContent = up ? t("Live") : t("Coterie is not reachable; retrying");
  },
);

// Wide screens show the chat beside the tabs; on narrow ones it is the first tab.
const narrow = matchMedia("(max-width: 61rem)");
const chatTab = one("#crowd-chat-tab");
const tablist = chatTab.parentElement;
function settle() {
  const focused = document.activeElement;
  if (narrow.matches) {
    tablist.prepend(chatTab);
    chatTab.click();
  } else {
    const chosen = chatTab.getAttribute("aria-selected") === "true";
    chatTab.remove();
    one("#crowd-chat").hidden = false;
    if (chosen) one("#crowd-stream-tab").click();
  }
  if (focused && focused !== document.body) focused.focus({ preventScroll: true });
  else document.activeElement?.blur();
}
narrow.addEventListener("change", settle);
settle();

// For measuring: `python -m bench.crowd_page` and the tests fill the list without a server.
crowd.virtual = list;
