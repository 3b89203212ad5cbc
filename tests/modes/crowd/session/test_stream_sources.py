"""C9: a stream's file is checked before a session starts; an error names the file, line, field and allowed values."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.base.clock import SystemClock
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.session.stream_context import RollingContext, StreamScript, StreamScriptLine
from coterie.modes.crowd.session.stream_sources import follow_file, open_stream

GOOD = '[[line]]\nat = 0.0\nsay = "hello"\n\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD + '[[line]]\nat = 1.0\nevent = "Hype Moment!"\n', ["tale.toml line 7", "event", "hype", "Hype Moment!"]),
        (GOOD + "[[line]]\nat = -1.0\n", ["tale.toml line 6", "line.1.at"]),
        (GOOD + "[[line]]\nat = nan\n", ["tale.toml line 6", "line.1.at"]),
        (GOOD + "[[line]]\nat = inf\n", ["line.1.at"]),
        (GOOD + "[[line]]\nat = 1\nconfidence = 7\n", ["tale.toml line 7", "confidence"]),
        (GOOD + '[[line]]\nat = 1\nsya = "hi"\n', ["tale.toml line 7", "say"]),
        ('title = "nothing happens"\n', ["no lines", "tale.toml"]),
        ("[[line]\n", ["tale.toml", "TOML"]),
    ],
)
def test_c9_an_invalid_script_is_refused_before_it_starts(tmp_path: Path, text: str, named: list[str]) -> None:
    file = tmp_path / "tale.toml"
    file.write_text(text)
    with pytest.raises(BadCrowdConfig) as caught:
        open_stream(str(file), "attic", SystemClock())
    assert all(part in caught.value.what for part in named), caught.value.what


@pytest.mark.parametrize("name", ["http://[", "a\0b", "x" * 5_000, "~nobody_here_at_all/x.toml", "/", ""])
def test_c9_a_stream_that_cannot_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(BadCrowdConfig):
        open_stream(name, "attic", SystemClock())


def test_c9_a_script_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tale.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadCrowdConfig, match=r"tale\.toml"):
        open_stream(str(file), "attic", SystemClock())


@given(st.dictionaries(st.sampled_from(["at", "say", "event", "confidence"]), st.floats() | st.text() | st.none()))
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_c9_every_line_that_is_accepted_gives_a_context(fields: dict[str, object]) -> None:
    try:
        line = StreamScriptLine.model_validate(fields)
    except ValueError:
        return
    context = RollingContext("attic").add(line.say, 1_000, line.event, line.confidence)
    assert context.from_json(context.to_json()) == context
    assert StreamScript(line=(line,)).seconds == line.at


async def test_c9_a_text_file_without_line_ends_is_read_in_parts(tmp_path: Path) -> None:
    file = tmp_path / "feed.txt"
    file.write_text("x" * 300_000)
    lines = follow_file(file)
    first = await asyncio.wait_for(anext(lines), 20)
    assert len(first) < 200_000
    await lines.aclose()  # type: ignore[attr-defined]
