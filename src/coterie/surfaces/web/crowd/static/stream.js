// The stream panel of a room: transcript, events, and statistics of the chat.
import { one } from "../shared/dom.js";
import { t } from "../shared/messages.js";

const MAX_LINES = 200;
const MAX_EVENTS = 6;
const WAVE = 120;
const KINDS = {
  chat_question: t("asked the chat"),
  hype: t("hype"),
  win: t("won"),
  fail: t("went wrong"),
  clutch: t("just so"),
  topic_change: t("new topic"),
  scene_change: t("new scene"),
  raid: t("raid"),
};
const moods = (mood) => (mood > 0.35 ? t("delighted") : mood > 0.1 ? t("cheerful") : mood < -0.35 ? t("gloomy") : mood < -0.1 ? t("uneasy") : t("calm"));
const velocities = [];
const seen = new Set();

export function context(data) {
  const words = one("#crowd-words");
  const said = data.latest ?? data.summary; // recordings before `latest` have the sentence in `summary`
  if (said || !words.dataset.said) words.textContent = said || "…";
  if (said) words.dataset.said = "1";
  one("#crowd-summary").textContent = data.latest === undefined ? "" : (data.summary ?? "");
  one("#crowd-shown").textContent = data.vision ? [data.vision.caption, ...(data.vision.on_screen_text ?? [])].filter(Boolean).join(" · ") : "";
  const transcript = one("#crowd-transcript");
  if (said && !transcript.querySelector(`[data-number="${data.number}"]`)) {
    const sticks = transcript.scrollHeight - transcript.scrollTop - transcript.clientHeight < 24;
    const line = document.createElement("p");
    line.dataset.number = data.number;
    line.append(clock(data.window.end), ` ${said}`);
    transcript.append(line);
    while (transcript.childElementCount > MAX_LINES) transcript.firstElementChild.remove();
    if (sticks) transcript.scrollTop = transcript.scrollHeight;
  }
  for (const moment of data.events ?? []) {
    const key = `${moment.kind}@${moment.at}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const item = document.createElement("li");
    const kind = document.createElement("span");
    Object.assign(kind, { className: `badge badge-${moment.kind === "fail" ? "warn" : "accent"}`, textContent: KINDS[moment.kind] ?? moment.kind.replaceAll("_", " ") });
    item.append(kind, " ", clock(moment.at), ` ${moment.about ?? ""}`);
    const list = one("#crowd-events");
    list.prepend(item);
    while (list.childElementCount > MAX_EVENTS) list.lastElementChild.remove();
  }
}

export function trends(data) {
  velocities.push(data.velocity);
  if (velocities.length > WAVE) velocities.shift();
  one("#crowd-velocity").textContent = data.velocity.toFixed(1);
  one("#crowd-mood").textContent = moods(data.mood);
  one("#crowd-persona-share").textContent = `${Math.round(data.bot_fraction * 100)} %`;
  one("#crowd-tokens").textContent = some(data.top_tokens);
  one("#crowd-emotes").textContent = some(data.top_emotes);
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
