// A turn that the address names (?at=12#t-…): what lies before it is fetched until it is there, then it is shown.
import { one } from "./dom.js";
import { toast } from "./toast.js";

const MOST_FETCHES = 400;
const frame = () => new Promise(requestAnimationFrame);

export async function reach(id) {
  // The chat itself first goes to its end.
  if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
  await frame();
  const scroller = one("#scroll");
  const at = Number(new URLSearchParams(location.search).get("at"));
  const further = () => !one("#older").hidden && Number(one(".turn", scroller)?.dataset.seq) > at;
  for (let tries = 0; tries < MOST_FETCHES && !document.getElementById(id) && further(); tries++) {
    // Older turns come when their place comes into sight, so it must have been out of sight before.
    to(scroller, scroller.scrollHeight / 2);
    await frame();
    await frame();
    const more = changed(one("#timeline"));
    to(scroller, 0);
    await more;
  }
  const turn = document.getElementById(id);
  if (!turn) return toast("That is not in this chat any more: it was taken back, or swiped away.");
  turn.classList.add("turn-found");
  turn.tabIndex = -1;
  // What is far off has no height of its own until it is drawn: look again once it has.
  for (let looks = 0; looks < 4; looks++) {
    turn.scrollIntoView({ block: "center" });
    scroller.dispatchEvent(new Event("scroll"));
    await frame();
  }
  turn.focus({ preventScroll: true });
}

// The chat stays at its end as long as nobody scrolled away; it must hear of it before anything else happens.
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
    }, 600); // it may have come just before anybody watched
  });
}
