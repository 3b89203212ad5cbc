// The stream's side of a room: the words as they are understood, what happened, and how the chat goes.
import { one } from "./dom.js";

const MOST_WORDS = 200;
const MOST_MOMENTS = 6;
const WAVE = 120;
const KINDS = { chat_question: "asked the chat", hype: "hype", fail: "went wrong", clutch: "just so", topic_change: "new topic", scene_change: "new scene", raid: "raid" };
const moods = (mood) => (mood > 0.35 ? "delighted" : mood > 0.1 ? "cheerful" : mood < -0.35 ? "gloomy" : mood < -0.1 ? "uneasy" : "calm");
const velocities = [];
const seen = new Set();

export function context(told) {
  const words = one("#crowd-words");
  words.textContent = told.summary || "…";
  const transcript = one("#crowd-transcript");
  if (told.summary && !transcript.querySelector(`[data-number="${told.number}"]`)) {
    const sticks = transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < 24;
    const line = document.createElement("p");
    line.dataset.number = told.number;
    line.append(clock(told.window.end), ` ${told.summary}`);
    transcript.append(line);
    while (transcript.childElementCount > MOST_WORDS) transcript.firstElementChild.remove();
    if (sticks) transcript.scrollTop = transcript.scrollHeight;
  }
  for (const moment of told.events ?? []) {
    const key = `${moment.kind}@${moment.at}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const item = document.createElement("li");
    const kind = document.createElement("span");
    Object.assign(kind, { className: `badge badge-${moment.kind === "fail" ? "warn" : "accent"}`, textContent: KINDS[moment.kind] ?? moment.kind.replaceAll("_", " ") });
    item.append(kind, " ", clock(moment.at), ` ${moment.about ?? ""}`);
    const list = one("#crowd-moments");
    list.prepend(item);
    while (list.childElementCount > MOST_MOMENTS) list.lastElementChild.remove();
  }
}

export function trends(told) {
  velocities.push(told.velocity);
  if (velocities.length > WAVE) velocities.shift();
  one("#crowd-velocity").textContent = told.velocity.toFixed(1);
  one("#crowd-mood").textContent = moods(told.mood);
  one("#crowd-bots").textContent = `${Math.round(told.bot_fraction * 100)} %`;
  one("#crowd-tokens").textContent = some(told.top_tokens);
  one("#crowd-emotes").textContent = some(told.top_emotes);
  const most = Math.max(1, ...velocities);
  const step = 300 / (WAVE - 1);
  const from = WAVE - velocities.length;
  const points = velocities.map((each, at) => `${((from + at) * step).toFixed(1)},${(46 - (each / most) * 42).toFixed(1)}`);
  one("#crowd-wave-line").setAttribute("points", points.join(" "));
  one("#crowd-wave-fill").setAttribute("points", `${(from * step).toFixed(1)},48 ${points.join(" ")} 300,48`);
}

const some = (counts) => (counts ?? []).slice(0, 4).map(({ what }) => what).join(", ") || "–";

function clock(ms) {
  const time = document.createElement("span");
  Object.assign(time, { className: "faint numbers small", textContent: new Date(ms).toLocaleTimeString(undefined, { timeStyle: "medium" }) });
  return time;
}
