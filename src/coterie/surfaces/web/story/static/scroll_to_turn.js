// Scrolls to a turn, fetching older ones until it is loaded: those after the one that the URL names (?at=12#t-…).
import { one } from "../shared/dom.js";
import { toast } from "../shared/toast.js";
import { t } from "../shared/messages.js";

const MAX_FETCHES = 400;
const frame = () => new Promise(requestAnimationFrame);

export async function scrollToTurn(id) {
  // The chat page first scrolls to its end.
  if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
  await frame();
  const scroller = one("#scroll");
  const at = Number(new URLSearchParams(location.search).get("at"));
  const further = () => !one("#older").hidden && Number(one(".turn", scroller)?.dataset.seq) > at;
  for (let tries = 0; tries < MAX_FETCHES && !document.getElementById(id) && further(); tries++) {
    // Older turns load when their placeholder becomes visible, so it must be out of view first.
    to(scroller, scroller.scrollHeight / 2);
    await frame();
    await frame();
    const more = changed(one("#timeline"));
    to(scroller, 0);
    await more;
  }
  const turn = document.getElementById(id);
  if (!turn) return toast(t("That message is no longer in this chat: it was rewound or replaced by another reply."));
  turn.classList.add("turn-found");
  turn.tabIndex = -1;
  turn.focus({ preventScroll: true }); // before the scrolling, which takes a while: somebody may type meanwhile
  // Turns far away have no height until drawn: scroll again afterwards.
  for (let looks = 0; looks < 4; looks++) {
    turn.scrollIntoView({ block: "center" });
    scroller.dispatchEvent(new Event("scroll"));
    await frame();
  }
}

// The scroll event is sent at once, so that the chat page leaves its end position.
function to(scroller, top) {
  scroller.scrollTop = top;
  scroller.dispatchEvent(new Event("scroll"));
}

function changed(timeline) {
  return new Promise((done) => {
    const watch = new MutationObserver(() => {
      watch.disconnect();
      done();
    });
    watch.observe(timeline, { childList: true });
    setTimeout(() => {
      watch.disconnect();
      done();
    }, 600); // the change may have come before the observer
  });
}
