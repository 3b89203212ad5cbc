"""The web page: size of a first visit, render time, and time until a long chat is readable.

Chats of 20,000 and 2,500 turns are written into the log. Measured in Chromium: bytes of a first visit; time from
navigation to the last 50 turns on screen, compared with SillyTavern with the same 2,500 messages (where it can run);
frame rate while scrolling back and while a reply of 1,200 tokens streams; server CPU of such a reply. The model runs in
another process at the pace of a hosted one and is called like any provider.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page

from bench.lib.browser import BenchServer, chromium, last_50_seen, seen_script
from bench.lib.model_server import model
from bench.lib.peers import PeerMissing
from bench.lib.report import arguments, finish, log, median, percentile, scratch_folder
from bench.lib.sillytavern import open_chat_in_sillytavern
from bench.turn import exchange
from coterie.modes.story.opening import Opening, OpeningPlace

_SHORT, _LONG = 2_500, 20_000
_TOKENS = 1_200
_PACE_S = 0.02
_AT_REST_MS = 3_000
_ROUNDS, _QUICK_ROUNDS = 60, 20
_BROWSER = {"Accept": "text/html", "Accept-Encoding": "gzip"}


async def _write(server: BenchServer, turns: int) -> str:
    from coterie.characters import starter_characters

    app = server.app
    character = await app.character_importer.author(starter_characters.starter_character("maren"))
    chat = await app.story.begin(
        character.id, Opening(title=f"{turns} turns", place=OpeningPlace(name="the lighthouse"))
    )
    chance = random.Random(turns)
    for _ in range(0, turns // 2, 100):
        await app.store.append([event for _ in range(100) for event in exchange(chat, character, chance)])
    return chat.id


def _render_ms(server: BenchServer, chat: str, rounds: int) -> list[float]:
    with httpx.Client(base_url=server.address, headers=_BROWSER, timeout=60) as client:
        taken = []
        for number in range(rounds + 3):
            started = time.perf_counter()
            client.get(f"/chats/{chat}").raise_for_status()
            if number >= 3:
                taken.append((time.perf_counter() - started) * 1_000)
    return taken


def _first_load_kb(browser: Browser, server: BenchServer, chat: str) -> float:
    """Everything a browser with an empty cache fetches for the chat page, in bytes over the wire."""
    context = browser.new_context(base_url=server.address)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(f"/chats/{chat}")
    page.wait_for_load_state("load")
    page.wait_for_timeout(1_000)
    context.close()
    return sum(sizes) / 1_000


_SEEN = "() => document.querySelectorAll('#timeline .turn').length >= 50"


def _open_ms(browser: Browser, server: BenchServer, chat: str) -> float:
    """From the start of the navigation to the last 50 turns laid out and the newest on the screen, by the page's clock.

    Static files are cached, as for a returning visitor.
    """
    context = browser.new_context(base_url=server.address)
    page = context.new_page()
    page.goto("/chats")
    page.add_init_script(seen_script("#timeline .turn"))
    page.goto(f"/chats/{chat}", wait_until="commit")
    taken = last_50_seen(page)
    context.close()
    return taken


@dataclass(frozen=True)
class Scrolled:
    frames: float
    longest_ms: float
    again: float
    """Frames per second through the same turns with all of them loaded: the upper bound of this browser."""


def _scroll_back(browser: Browser, server: BenchServer, chat: str, turns: int) -> Scrolled:
    """Frame rate while scrolling back through `turns`, and the longest frame."""
    context = browser.new_context(base_url=server.address, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"/chats/{chat}")
    page.wait_for_function(_SEEN)
    page.wait_for_timeout(500)
    frames, seconds, longest = page.evaluate(_SCROLL, turns)
    page.route("**/turns?before=*", lambda route: route.abort())
    page.evaluate("document.querySelector('#scroll').scrollTop = 1e9")
    page.wait_for_timeout(500)
    again, seconds_again, _ = page.evaluate(_SCROLL, 10**9)
    context.close()
    return Scrolled(frames / seconds, longest, again / seconds_again)


# Scrolls up by 120 px a frame, and waits while there is nothing above.
_SCROLL = """turns => new Promise(done => {
    const scroller = document.querySelector("#scroll"), timeline = document.querySelector("#timeline");
    let frames = 0, longest = 0, last = performance.now();
    const started = last;
    const tick = now => {
        frames++;
        longest = Math.max(longest, now - last);
        last = now;
        scroller.scrollTop -= 120;
        const on = timeline.children.length < turns && (turns < 1e9 || scroller.scrollTop > 0);
        if (on && now - started < 120000) requestAnimationFrame(tick);
        else done([frames, (now - started) / 1000, longest]);
    };
    requestAnimationFrame(tick);
})"""


_COUNT_FRAMES = """() => { window.frames_seen = []; let last = performance.now();
    const tick = now => { window.frames_seen.push(now - last); last = now; requestAnimationFrame(tick); };
    requestAnimationFrame(tick); }"""


@dataclass(frozen=True)
class Streamed:
    """Server CPU of a streamed reply with and without an open page.

    The CPU time of an idle server in the same period is measured separately.
    """

    seen_s: float
    unseen_s: float
    idle_s: float
    frames: float


def _streamed(page: Page, server: BenchServer, chat: str, tokens: int) -> Streamed:
    room = f"room:{chat}"

    def at_rest() -> float:
        """Seconds of CPU per second."""
        page.wait_for_timeout(_AT_REST_MS)  # what is done after a reply is not the next one's
        before, started = server.cpu(), time.perf_counter()
        page.wait_for_timeout(_AT_REST_MS)
        return (server.cpu() - before) / (time.perf_counter() - started)

    def speak(words: int) -> tuple[float, float]:
        idle = at_rest()
        before, started = server.cpu(), time.perf_counter()
        server.do(server.app.story.send_message(room, f"Go on, {words} words."))
        server.do(server.app.story.replies.wait(room))
        idle *= time.perf_counter() - started
        return server.cpu() - before - idle, idle

    page.goto("/about")
    speak(10)  # the first reply loads tokenizer, price list and memories
    unseen, _ = speak(tokens)
    page.goto(f"/chats/{chat}")
    page.wait_for_function(_SEEN)
    page.evaluate(_COUNT_FRAMES)
    started = page.evaluate("performance.now()")
    seen, idle = speak(tokens)
    frames, ended = page.evaluate("[window.frames_seen.length, performance.now()]")
    return Streamed(seen, unseen, idle, frames / (ended - started) * 1_000)


def run(quick: bool) -> dict[str, object]:
    figures: dict[str, object] = {}
    with scratch_folder() as folder, chromium() as browser, model(_PACE_S) as speaker:
        server = BenchServer(Path(folder) / "server", speaker)
        short = server.do(_write(server, _SHORT))
        long = server.do(_write(server, _LONG))
        log(f"Chats of {_SHORT:,} and {_LONG:,} turns are written.")
        rendered = _render_ms(server, long, _QUICK_ROUNDS if quick else _ROUNDS)
        log(f"Rendering takes {median(rendered):.1f} ms (median), p95 {percentile(rendered, 0.95):.1f} ms.")
        weight = _first_load_kb(browser, server, long)
        log(f"A first visit is {weight:.1f} KB.")
        opened = {turns: median([_open_ms(browser, server, chat) for _ in range(3 if quick else 7)])
                  for turns, chat in ((_SHORT, short), (_LONG, long))}  # fmt: skip
        log(f"Last 50 on screen: {opened[_SHORT]:.0f} ms at {_SHORT:,} turns, {opened[_LONG]:.0f} ms at {_LONG:,}.")
        scrolled = _scroll_back(browser, server, long, 1_000 if quick else 5_000)
        log(f"Scrolling back: {scrolled.frames:.0f} frames/s, the longest took {scrolled.longest_ms:.0f} ms;")
        log(f"through the same turns with nothing to load {scrolled.again:.0f} frames/s.")
        tokens = _TOKENS // 4 if quick else _TOKENS
        page = browser.new_context(base_url=server.address).new_page()
        reply = _streamed(page, server, short, tokens)
        log(f"A streamed reply of {tokens} tokens: {reply.seen_s:.2f} s of server CPU, {reply.frames:.0f} fps.")
        log(f"Without an open page: {reply.unseen_s:.2f} s. Idle for as long: {reply.idle_s:.2f} s, not counted.")
        server.close()
        figures = {
            "first_load_kb": round(weight, 1),
            "render_p95_ms": round(percentile(rendered, 0.95), 1),
            "last_50_visible_ms": round(opened[_SHORT]),
            "last_50_visible_20k_ms": round(opened[_LONG]),
            "scroll_fps": round(scrolled.frames, 1),
            "scroll_loaded_fps": round(scrolled.again, 1),
            "scroll_longest_frame_ms": round(scrolled.longest_ms),
            "stream_cpu_s": round(reply.seen_s, 3),
            "stream_unseen_cpu_s": round(reply.unseen_s, 3),
            "stream_idle_cpu_s": round(reply.idle_s, 3),
            "stream_tokens": tokens,
            "stream_fps": round(reply.frames, 1),
        }
        try:
            figures["sillytavern_ms"] = round(open_chat_in_sillytavern(browser, Path(folder) / "st", _SHORT))
        except PeerMissing as missing:
            figures |= {"sillytavern_ms": None, "sillytavern_why": str(missing)}
    return figures


def main() -> None:
    options = arguments(__doc__).parse_args()
    finish(run(options.quick))


if __name__ == "__main__":
    main()
