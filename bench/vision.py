"""Whether what a stream shows is understood: a video with known events, watched as fast as possible.

The video is drawn for the run (bench/lib/sample_video.py). An event counts as found if one of its kind is reported at
most three seconds after it, and each report counts once; every report without an event is an error. Then a session
runs on the contexts, with a model that repeats what its prompt says about the picture, and with canned lines.
"""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

from bench.lib.report import arguments, finish, log, scratch_folder
from bench.lib.sample_video import ShownEvent, make_video
from coterie.base.clock import SystemClock
from coterie.modes.crowd.generation import CannedLines
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.replay import Simulation, admission_for
from coterie.modes.crowd.session.stream_context import RollingContext
from coterie.modes.crowd.settings import CrowdConfigs
from coterie.modes.crowd.vision import VideoSource, VideoWatcher, create_screen_reader, watch_video

_WITHIN_S = 3.0
_SECONDS, _QUICK_SECONDS = 420.0, 60.0
_START_MS = 1_767_225_600_000


class _RepeatsScreen(CannedLines):
    """Says what the prompt shows of the picture, as a model may; canned lines otherwise."""

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        if request.on_screen and request.because in ("event", "base", "trend") and attempt == 0:
            return f"{request.on_screen[request.seed % len(request.on_screen)]}, as {request.persona.name} sees it"
        return super().write(request, attempt)


def count_found(events: list[ShownEvent], reports: list[tuple[str, float]]) -> tuple[int, int, int]:
    """Found events, missed events and reports without an event."""
    left = list(reports)
    found = 0
    for event in events:
        match = next(
            (each for each in left if each[0] == event.kind and -0.5 <= each[1] - event.at_s <= _WITHIN_S), None
        )
        if match is not None:
            left.remove(match)
            found += 1
    return found, len(events) - found, len(left)


async def watch(file: Path) -> tuple[list[StreamContext], int]:
    clock = SystemClock()
    watcher = VideoWatcher(create_screen_reader())
    frames = VideoSource(str(file), clock, paced=False).frames()
    start_ms = clock.now_ms()
    return [context async for context in watch_video(frames, watcher, RollingContext("late-shift"))], start_ms


def main() -> None:
    options = arguments(__doc__).parse_args()
    with scratch_folder() as folder:
        file = Path(folder) / "game.avi"
        events = make_video(file, _QUICK_SECONDS if options.quick else _SECONDS)
        log(f"{len(events)} events in the video")
        before = _cpu_s()
        started = time.perf_counter()
        contexts, start_ms = asyncio.run(watch(file))
        cpu_s, seconds = _cpu_s() - before, time.perf_counter() - started
    minutes = (contexts[-1].window.end - start_ms) / 60_000
    reports: dict[tuple[str, int], None] = {}
    for context in contexts:
        for event in context.events:
            reports[event.kind, event.at] = None
    times = [(kind, (at - start_ms) / 1_000) for kind, at in reports]
    found, missed, wrong = count_found(events, times)
    f1 = 2 * found / max(1, 2 * found + missed + wrong)
    for kind in ("scene_change", "win", "fail"):
        part = count_found([e for e in events if e.kind == kind], [t for t in times if t[0] == kind])
        log(f"{kind}: {part[0]} found, {part[1]} missed, {part[2]} wrong")
    log(f"shown: {[(e.kind, round(e.at_s, 1), e.text) for e in events]}")
    log(f"reported: {[(kind, round(at, 1)) for kind, at in times]}")
    log(f"watched {minutes:.1f} minutes in {seconds:.0f} s, {cpu_s:.0f} s of processor time")
    about, reactions = _session(contexts, start_ms, minutes)
    finish(
        {
            "events": len(events),
            "f1": round(f1, 3),
            "payload_max_bytes": max(len(context.to_json().encode()) for context in contexts),
            "cpu_s_per_minute": round(cpu_s / minutes, 2),
            "lines_about_the_picture": about,
            "lines_caused_by_events": reactions,
        }
    )


def _session(contexts: list[StreamContext], start_ms: int, minutes: float) -> tuple[float, int]:
    """Which part of the lines quotes the picture, and how many lines its events caused."""
    configs = CrowdConfigs()
    room = configs.room("late-shift")
    personas = configs.personas_in(room)
    admission = admission_for(room, personas, configs.moderator(room))
    simulation = Simulation(room, personas, admission, seed=5, start_ms=_START_MS, lines=_RepeatsScreen())
    shift = _START_MS - start_ms
    moved = [
        (
            context.window.end + shift,
            context.model_copy(
                update={
                    "events": tuple(each.model_copy(update={"at": each.at + shift}) for each in context.events),
                }
            ),
        )
        for context in contexts
    ]
    simulation.run(minutes, moved)
    texts = {text for context in contexts if context.vision is not None for text in context.vision.on_screen_text}
    lines = [message for message in simulation.messages if message.author.kind == "persona"]
    about = sum(any(text in line.text for text in texts) for line in lines)
    reactions = sum(line.trace is not None and line.trace.because == "event" for line in lines)
    return round(about / max(1, len(lines)), 3), reactions


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
