"""What models do to words they quote: the kinds of noise that locating is measured with. Everything is seeded."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Noise = Callable[[str, random.Random, Sequence[str]], str]

_SIGN = re.compile(r"[ \t]*(?:[-*+>#]{1,6}[ \t]+)+")


def reflow(text: str, chance: random.Random, _: Sequence[str]) -> str:
    """Other line breaks, at another width."""
    width, column, lines = chance.choice((30, 50, 64, 100, 10_000)), 0, ""
    for word in text.split():
        if column and column + len(word) > width:
            lines, column = lines + "\n" + word, len(word)
        else:
            lines += (" " if lines else "") + word
            column += len(word) + 1
    return lines


def smart_quotes(text: str, _: random.Random, __: Sequence[str]) -> str:
    """Curly quotes, long dashes, one character for three dots."""
    text = re.sub(r'(^|[\s(\[])"', r"\1“", text)
    text = re.sub(r"(^|[\s(\[])'", r"\1‘", text)
    text = text.replace('"', "”").replace("'", "’")
    return re.sub(r"(?<=\s)--?(?=\s)", "–", text)


def stripped(text: str, _: random.Random, __: Sequence[str]) -> str:
    """As read on a rendered page: no emphasis, no code signs, no link targets, no signs at the start of lines."""
    text = re.sub(r"(?m)^[ \t]*(?:[-*+>#]{1,6}[ \t]+)+", "", text)
    text = re.sub(r"!?\[([^\]\n]*)\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\[[^\]\n]*\])", r"\1", text)
    return re.sub(r"\\(?=[!-/:-@\[-`{-~])", "", re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text))


def escaped(text: str, _: random.Random, __: Sequence[str]) -> str:
    """Markdown's signs escaped, by a model that took care where none was needed."""
    return re.sub(r"(?<!\\)([*_`\[\]#])", r"\\\1", text)


def wrong_words(count: int) -> Noise:
    def spoil(text: str, chance: random.Random, vocabulary: Sequence[str]) -> str:
        """Some words replaced by others of the same document, left out, or put in.

        The outermost are only replaced: a quote without its first word is a shorter quote, and no wrong one.
        """
        pieces = re.findall(r"\S+|\s+", text)
        places = [n for n, piece in enumerate(pieces) if re.search(r"\w", piece)]
        for place in chance.sample(places, min(count, len(places))):
            other = chance.choice(vocabulary)
            inside = places[0] < place < places[-1]
            match chance.choices(("replace", "drop", "add"), (6, 2, 2) if inside else (1, 0, 0))[0]:
                case "replace":
                    pieces[place] = other
                case "drop":
                    pieces[place] = ""
                case _:
                    pieces[place] = f"{pieces[place]} {other}"
        return "".join(pieces)

    return spoil


def ellipsis(text: str, chance: random.Random, _: Sequence[str]) -> str:
    """The middle left out."""
    words = re.findall(r"\S+\s*", text)
    head = chance.randint(4, max(4, len(words) // 3))
    tail = chance.randint(4, max(4, len(words) // 3))
    return "".join(words[:head]).rstrip() + chance.choice((" … ", "... ", " [...] ")) + "".join(words[-tail:]).rstrip()


def mixed(text: str, chance: random.Random, vocabulary: Sequence[str]) -> str:
    text = wrong_words(1)(text, chance, vocabulary)
    for noise in chance.sample((reflow, smart_quotes, stripped), 2):
        text = noise(text, chance, vocabulary)
    return text


NOISES: dict[str, Noise] = {
    "reflow": reflow,
    "smart quotes": smart_quotes,
    "markup stripped": stripped,
    "escaped": escaped,
    "one word": wrong_words(1),
    "two words": wrong_words(2),
    "three words": wrong_words(3),
    "ellipsis": ellipsis,
    "mixed": mixed,
}
NOT_IN_CODE = ("markup stripped", "escaped", "mixed")
"""In a block of code nothing is markup, so there is none to strip or to escape."""
FORMATTING = ("reflow", "smart quotes", "markup stripped", "escaped")
WORDS = ("one word", "two words", "three words")


@dataclass(frozen=True)
class Paragraph:
    start: int
    end: int
    text: str

    @property
    def has_code(self) -> bool:
        return "```" in self.text

    @property
    def after_sign(self) -> int:
        """Where its words begin, after a bullet or heading sign: a quote without the sign does not mean it."""
        sign = _SIGN.match(self.text)
        return self.start + sign.end() if sign else self.start


def paragraphs(document: str, shortest: int = 40, fewest_words: int = 8, *, copies: bool = False) -> list[Paragraph]:
    """What stands between blank lines, as far as it is long enough to be quoted and stands there once.

    A block of code is one paragraph with its fences. What differs from another only in formatting has no one place,
    and is left out unless `copies` are wanted.
    """
    found: list[Paragraph] = []
    squeezed = _squeezed(document)
    for start, end in _blocks(document):
        text = document[start:end]
        long = len(text) >= shortest and len(text.split()) >= fewest_words
        if long and (copies or squeezed.count(_squeezed(text)) == 1):
            found.append(Paragraph(start, end, text))
    return found


def _blocks(document: str) -> Iterator[tuple[int, int]]:
    start: int | None = None
    end = at = 0
    in_code = False
    for line in document.splitlines(keepends=True):
        if re.match(r"[ \t]*```", line):
            in_code = not in_code
        if line.strip():
            start = at + len(line) - len(line.lstrip()) if start is None else start
            end = at + len(line.rstrip())
        elif start is not None and not in_code:
            yield start, end
            start = None
        at += len(line)
    if start is not None:
        yield start, end


def _squeezed(text: str) -> str:
    text = re.sub(r"\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\[[^\]\n]*\])", "]", text)
    return re.sub(r"[\s*_`~>#+\\\[\]-]+", "", text)
