"""Text on the screen, read by RapidOCR, whose models are part of its wheel, and what it says about the game."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.vision.frames import HEIGHT, Pixels

_MIN_SCORE = 0.6
_MAX_LINES = 20
_MAX_LINE_CHARS = 80
_MAX_CHARS = 600
_LARGE = 0.07
"""Height of text, as a part of the picture's, from which it is what the picture is about."""
_SMALL = 0.035
"""Smaller text is in menus, the chat or a display of the game's state, and announces nothing."""


def _announcement(pattern: str) -> re.Pattern[str]:
    """Spaces are optional: the recogniser leaves some out."""
    return re.compile(pattern.replace(" ", " ?"))


_WHAT = r"(?:mission|level|stage|quest|wave|round|race|boss|game|match|challenge|run)"
_WIN = _announcement(
    rf"(?:you |we )?(?:win|won)|(?:the )?winner(?: is .{{1,30}})?|victory(?: royale| achieved)?|champions?"
    rf"|(?:{_WHAT} )?(?:complete|completed|cleared|clear|passed)|(?:great )?(?:enemy|foe) felled|new record"
)
_FAIL = _announcement(
    rf"game over|(?:you |we )?(?:died|lose|lost)|you(?: are|'re) dead|defeat(?:ed)?|wasted|eliminated"
    rf"|(?:{_WHAT} )?failed|time(?: is|'s)? up|k\.?o\.?"
)
_LOOK_ALIKE = str.maketrans({"0": "o", "1": "i", "|": "i", "5": "s"})
"""Digits that a recogniser reads for letters."""
_NOT_WORDS = re.compile(r"[^\w'. ]+")


class TextLine(NamedTuple):
    text: str
    height: float
    """As a part of the picture's height."""
    top: float


class ScreenReader(Protocol):
    def read(self, pixels: Pixels) -> list[TextLine]:
        """Return the lines of text, from top to bottom. Blocks: call it in a thread."""
        ...


class RapidOcrReader:
    """RapidOCR on one thread: about 0.7 s of processor time per frame."""

    def __init__(self) -> None:
        try:
            from rapidocr_onnxruntime import RapidOCR
        except ImportError:
            raise MissingExtra("vision", "Reading the text on a stream's picture") from None
        self._recognise: Any = RapidOCR(
            intra_op_num_threads=1,
            inter_op_num_threads=1,
            det_limit_side_len=960,
            det_limit_type="max",
        )

    def read(self, pixels: Pixels) -> list[TextLine]:
        found, _ = self._recognise(pixels, use_cls=False)
        lines = []
        for box, text, score in found or ():
            rows = [point[1] for point in box]
            clean = " ".join(str(text).split())[:_MAX_LINE_CHARS]
            if float(score) >= _MIN_SCORE and clean:
                lines.append(TextLine(clean, (max(rows) - min(rows)) / HEIGHT, min(rows) / HEIGHT))
        return sorted(lines, key=lambda line: line.top)


def create_screen_reader() -> ScreenReader:
    """Raises `MissingExtra` without `coterie[vision]`."""
    return RapidOcrReader()


def bounded_texts(lines: Iterable[TextLine]) -> tuple[str, ...]:
    """The texts for a stream context: the largest lines if there is too much, in their order on the screen."""
    chosen: list[TextLine] = []
    left = _MAX_CHARS
    for line in sorted(lines, key=lambda line: -line.height)[:_MAX_LINES]:
        if len(line.text) <= left:
            chosen.append(line)
            left -= len(line.text)
    return tuple(line.text for line in sorted(chosen, key=lambda line: line.top))


def headline(lines: Iterable[TextLine]) -> str:
    """The large text of a title card or an announcement; empty if there is none."""
    return " ".join(line.text for line in lines if line.height >= _LARGE)[:_MAX_LINE_CHARS]


def screen_events(lines: Sequence[TextLine]) -> dict[str, tuple[str, float]]:
    """The announcements on the screen: `win` or `fail`, each with its text and a confidence.

    Only a line that is nothing but the announcement counts, so that a title, a chat or a counter is none.
    """
    candidates = [(line.text, line.height) for line in lines if line.height >= _SMALL]
    large = [line for line in lines if line.height >= _LARGE]
    if len(large) > 1:  # an announcement in two lines
        candidates.append((" ".join(line.text for line in large), min(line.height for line in large)))
    events: dict[str, tuple[str, float]] = {}
    for text, height in candidates:
        words = _normalise(text)
        for kind, pattern in (("win", _WIN), ("fail", _FAIL)):
            if kind not in events and (pattern.fullmatch(words) or pattern.fullmatch(words.translate(_LOOK_ALIKE))):
                events[kind] = (text, 0.9 if height >= _LARGE else 0.65)
    return events


def _normalise(text: str) -> str:
    return " ".join(_NOT_WORDS.sub(" ", text.casefold().replace("’", "'")).split()).strip(" .")
