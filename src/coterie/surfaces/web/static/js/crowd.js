// A crowd's room: the chat, the stream beside it, who is there, and what a moderator can do.
import { all, nodes, on, one } from "./dom.js";
import { api, post } from "./api.js";
import { shortcut } from "./shortcuts.js";
import { toast } from "./toast.js";
import { announceTrouble } from "./trouble.js";
import { Live } from "./crowd_live.js";
import { lines } from "./crowd_line.js";
import { context, trends } from "./crowd_stream.js";
import { VirtualList } from "./virtual.js";

const crowd = one("#crowd");
const room = crowd.dataset.room;
const base = `/crowd/${encodeURIComponent(room)}`;
const said = one("#crowd-said");
const draw = lines({ hues: JSON.parse(crowd.dataset.hues), emotes: JSON.parse(crowd.dataset.emotes), you: crowd.dataset.you });
const list = new VirtualList(one("#crowd-scroll"), one("#crowd-space"), one("#crowd-window"), draw);

let behind = 0;
let reply = null;
let fetching = false;

// ── the chat ──
function hear(told) {
  if (told.type === "snapshot") {

    list.replace(told.messages);
  } else {
    const known = list.length ? list.at(list.length - 1).number : 0;
    list.append(told.messages.filter(({ number }) => number > known));
    if (!list.sticks) behind += told.messages.length;
  }
  tally();
}

function tally() {
  const last = list.length ? list.at(list.length - 1).number : 0;
  one("#crowd-count").textContent = last ? `${last.toLocaleString()} messages` : "";
  one("#crowd-empty").hidden = list.length > 0;
  const pill = one("#crowd-pill");
  pill.hidden = list.sticks;
  one("span", pill).textContent = behind ? `${behind.toLocaleString()} new` : "Latest";
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
    announceTrouble(error);
  } finally {
    fetching = false;
  }
}, { passive: true });

on("submit", "#crowd-say", async (event, form) => {
  event.preventDefault();
  const field = one("#crowd-line");
  const text = field.value.trim();
  if (!text) return;
  const refused = one("#crowd-refused");
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
  const note = one("#crowd-replying");
  note.hidden = !id;
  note.textContent = id ? `Answering ${name}` : "";
  if (id) {
    const field = one("#crowd-line");
    field.value = `@${name} ${field.value.replace(/^@\S+\s*/, "")}`;
    field.focus();
  }
}
on("keydown", "#crowd-line", (event) => event.key === "Escape" && answer(null));

/** Fills a place with what is at a path; of several asked for in a row, the last one stays, whenever they come. */
function filler(place) {
  let asked = 0;
  return async (path) => {
    const mine = ++asked;
    const text = await (await fetch(base + path)).text();
    if (mine === asked) place.replaceChildren(nodes(text));
  };
}

// ── one message ──
const fillSaid = filler(said);
async function tellOf(number) {
  await fillSaid(`/said/${number}`);
  said.hidden = false;
  tellTimes(said);
  if (list.sticks) list.toEnd();
}
on("click", ".crowd-window .line", (_, row) => tellOf(row.dataset.number));
on("keydown", "#crowd-scroll", async (event) => {
  if (event.key !== "Enter" || !list.length) return;
  await tellOf(list.at(list.length - 1).number);
  one("button", said)?.focus();
});
on("click", "[data-said-steps]", async (_, button) => {
  const label = button.getAttribute("aria-label");
  await tellOf(Math.max(1, Number(button.dataset.saidSteps)));
  one(`[aria-label="${label}"]`, said)?.focus();
});
on("click", "[data-said-closes]", () => {
  said.hidden = true;
  one("#crowd-scroll").focus();
});
on("click", "[data-reply]", (_, button) => answer(button.dataset.reply, button.dataset.replyName));

// ── who is there ──
const regulars = one("#crowd-regulars");
const fillRegulars = filler(regulars);
const show = (path) => fillRegulars(`/people${path}`);
const lookAt = (name) => show(`/${encodeURIComponent(name)}`);
on("click", "#crowd-people-tab", () => one(".regulars, .person", regulars) ?? show(""));
on("click", "[data-everybody]", () => show(""));
on("click", "[data-regular]", (_, button) => {
  one("#crowd-people-tab").click();
  lookAt(button.dataset.regular);
});
on("click", "[data-revert]", async (_, button) => {
  const name = button.closest("[data-person]").dataset.person;
  await attempt(() => post(`${base}/people/${name}/revert`, { to: Number(button.dataset.revert) }), `${name} is as they were then, from the next evening on.`);
  lookAt(name);
});
on("click", "[data-freeze]", async (_, button) => {
  const name = button.closest("[data-person]").dataset.person;
  const frozen = button.dataset.freeze === "true";
  await attempt(() => post(`${base}/people/${name}/freeze`, { frozen }), frozen ? `${name} stays as they are.` : `${name} may change again.`);
});

on("click", "[data-meets]", async (_, button) => {
  try {
    const bot = await post(`/crowd/personas/${button.dataset.meets}/meet`);
    location.assign(`/bots/${encodeURIComponent(bot.id)}`);
  } catch (error) {
    announceTrouble(error);
  }
});

// ── rulings ──
const rule = (told, saying, undo) => attempt(() => post(`${base}/rulings`, told), saying, undo);
on("click", "[data-rules]", (_, button) => {
  const { rules: what, who } = button.dataset;
  const back = what === "pardon" ? null : () => rule({ what: "pardon", who }, `${who} may speak again.`);
  rule({ what, who, ...(what === "timeout" ? { seconds: 60 } : {}) }, { timeout: `${who} is timed out for a minute.`, ban: `${who} is banned.`, pardon: `${who} may speak again.` }[what], back);
});
on("change", "[data-ruling]", (_, field) => {
  const what = field.dataset.ruling;
  if (what === "slow") return rule({ what, seconds: Number(field.value) }, Number(field.value) ? `Slow mode: ${field.value} s.` : "Slow mode is off.");
  if (what === "followers") return rule({ what, on: field.checked }, field.checked ? "Followers only." : "Everybody may chat.");
  return rule({ what: field.checked ? "kill" : "revive" }, field.checked ? "The room is switched off." : "The room is on again.");
});

async function attempt(act, saying, undo = null) {
  try {
    await act();
    toast(saying, { seconds: 5, ...(undo ? { action: "Undo", act: undo } : {}) });
  } catch (error) {
    announceTrouble(error);
  }
}

// ── what if ──
const wonder = one("#crowd-wonder");
const asTheyAre = () => {
  for (const [trait, value] of Object.entries(JSON.parse(wonder.dataset.traits)[wonder.elements.persona.value])) {
    const slider = wonder.elements[trait];
    slider.value = value;
    one("output", slider.parentElement).value = slider.value;
  }
};
wonder.elements.persona.addEventListener("change", asTheyAre);
asTheyAre();

// ── evenings ──
on("submit", "#crowd-starting", async (event, form) => {
  event.preventDefault();
  const told = Object.fromEntries(new FormData(form));
  await attempt(async () => {
    await post(`${base}/start`, told);
    form.closest("dialog").close();
  }, "The evening begins.");
});
on("click", "#crowd-end", () => attempt(() => post(`${base}/stop`), "The evening is over. Everybody looks back."));

function state(told) {
  const badge = one("#crowd-state");
  badge.dataset.state = told.state;
  badge.textContent = { quiet: "quiet", waking: "waking the model", live: "live" }[told.state];
  one("#crowd-begin").hidden = told.state !== "quiet";
  one("#crowd-end").hidden = told.state === "quiet";
  one("#crowd-pace").textContent = `${told.personas.length} regulars`;
  one("#crowd-trouble").textContent = told.trouble;
}

function tellTimes(within) {
  for (const time of all("time[data-ms]", within)) time.textContent = new Date(Number(time.dataset.ms)).toLocaleTimeString();
}
document.addEventListener("htmx:after:swap", () => tellTimes(document));
tellTimes(document);

let audited = 0;
new Live(
  room,
  (name, told) => {
    if (name === "frame") hear(told);
    else if (name === "context") context(told);
    else if (name === "trends") trends(told);
    else if (name === "state") state(told);
    else if (name === "audit") {
      clearTimeout(audited);
      audited = setTimeout(() => one("#crowd-audit").dispatchEvent(new Event("audited")), 300);
    }
  },
  (up) => {
    const live = one("[data-live]");
    live.dataset.state = up ? "live" : "offline";
    live.textContent = up ? "Live" : "Coterie does not answer; trying again";
  },
);

// Where there is room, the chat stands beside whatever tab is open; where there is not, it is a tab, and the first.
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
