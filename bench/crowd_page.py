"""Frame rate of a crowd's chat page: 200 messages a second into a list of 100,000, in Chromium.

The messages pass the gateway's admission and commit, the ticks of the fan-out and the stream of the page. Frames are
counted at the end of the list and then at its middle.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from playwright.sync_api import Page

from bench.lib.browser import BenchServer, chromium
from bench.lib.report import arguments, finish, log, median, percentile, scratch_folder
from coterie.modes.crowd import ChatAuthor, ChatPost

_HISTORY = 100_000
_PER_SECOND = 200
_ROOM = 'name = "flood"\ntitle = "Flood"\nroster = ["salt_lamp"]\n[limits]\nburst = 1000000\nper_minute = 1000000\n'
_FILL = """([from, many]) => document.getElementById("crowd").virtual.append(Array.from({ length: many }, (_, at) => ({
    number: from + at, id: `flood-${from + at}`, author: { name: `reader_${at % 40}`, kind: "human" },
    text: `line ${from + at} ${"of a long chat ".repeat(at % 7)}` })))"""
_WATCH = """() => { const times = (window.frameTimes = []); let last = performance.now();
    const step = (now) => { times.push(now - last); last = now;
        if (window.frameTimes === times) requestAnimationFrame(step); };
    requestAnimationFrame(step); }"""
_CHAT = (
    "did he just eat the health potion at full health",
    "LUL that was so good",
    "no way he makes that jump, and if he does I will eat my hat, and it is a large hat, you have all seen it",
    "@salt_lamp left path left path left path",
    "someone clip that please",
)


async def _flood(server: BenchServer, seconds: float) -> int:
    room = await server.app.crowd.room("flood")
    chance = random.Random(room.gateway.admission.last_number)
    for _ in range(round(seconds * 10)):
        for _ in range(_PER_SECOND // 10):
            author = ChatAuthor(name=f"u{chance.randrange(400)}", kind="human")
            text = f"{chance.choice(_CHAT)} {room.gateway.admission.last_number}"
            room.gateway.post(
                ChatPost(id=f"f{room.gateway.admission.last_number}", room="flood", author=author, text=text)
            )
        await asyncio.sleep(0.1)
    await room.gateway.flush()
    return room.gateway.admission.last_number


def _frames(page: Page, server: BenchServer, seconds: float) -> list[float]:
    page.evaluate(_WATCH)
    server.do(_flood(server, seconds))
    times: list[float] = page.evaluate(
        "() => { const times = window.frameTimes; window.frameTimes = null; return times; }"
    )
    return times[2:]


def run(quick: bool) -> dict[str, object]:
    seconds = 5.0 if quick else 20.0
    with scratch_folder() as name, chromium() as browser:
        folder = Path(name) / "data"
        (folder / "configs" / "rooms").mkdir(parents=True)
        (folder / "configs" / "rooms" / "flood.toml").write_text(_ROOM)
        server = BenchServer(folder)
        page = browser.new_page(base_url=server.address, viewport={"width": 1440, "height": 900})
        page.goto("/crowd/flood")
        page.locator("[data-live][data-state=live]").wait_for()
        idle = _idle_frames(page)
        page.evaluate(_FILL, [1 - _HISTORY, _HISTORY - 1])
        end = _frames(page, server, seconds)
        rows = page.locator(".line").count()
        page.evaluate("document.getElementById('crowd-scroll').scrollTop /= 2")
        page.wait_for_timeout(300)
        middle = _frames(page, server, seconds)
        held = page.evaluate("document.getElementById('crowd').virtual.length")
        server.close()
    for what, times in (("nothing happens", idle), ("at the end", end), ("in the middle", middle)):
        log(
            f"{what}: {_fps(times):.0f} frames a second, p95 {percentile(times, 0.95):.0f} ms,"
            f" worst {max(times):.0f} ms"
        )
    log(f"{held:,} in the list, {rows} of them in the page")
    return {
        "history": held,
        "rows_in_page": rows,
        "idle_fps": round(_fps(idle), 1),
        "fps": round(_fps(end), 1),
        "frame_p50_ms": round(median(end), 1),
        "frame_p95_ms": round(percentile(end, 0.95), 1),
        "scrolled_fps": round(_fps(middle), 1),
        "scrolled_frame_p95_ms": round(percentile(middle, 0.95), 1),
    }


def _idle_frames(page: Page) -> list[float]:
    page.evaluate(_WATCH)
    page.wait_for_timeout(2_000)
    times: list[float] = page.evaluate(
        "() => { const times = window.frameTimes; window.frameTimes = null; return times; }"
    )
    return times[2:]


def _fps(times: list[float]) -> float:
    return 1_000 * len(times) / max(sum(times), 1)


def main() -> None:
    options = arguments(__doc__).parse_args()
    finish(run(options.quick))


if __name__ == "__main__":
    main()
