"""The errors that models make when they quote a document, reproduced with a seeded generator."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Noise = Callable[[str, random.Random, Sequence[str]], str]

_BULLET = re.compile(r"[ \t]*(?:[-*+>#]{1,6}[ \t]+)+")


def reflow(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Other line breaks, at another width."""
    width, column, lines = rng.choice((30, 50, 64, 100, 10_000)), 0, ""
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
    """As on a rendered page: without emphasis, code markup, link targets, bullets and heading marks."""
    text = re.sub(r"(?m)^[ \t]*(?:[-*+>#]{1,6}[ \t]+)+", "", text)
    text = re.sub(r"!?\[([^\]\n]*)\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\[[^\]\n]*\])", r"\1", text)
    return re.sub(r"\\(?=[!-/:-@\[-`{-~])", "", re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text))


def escaped(text: str, _: random.Random, __: Sequence[str]) -> str:
    """Markdown's markup escaped, although it need not be."""
    return re.sub(r"(?<!\\)([*_`\[\]#])", r"\\\1", text)


def wrong_words(count: int) -> Noise:
    def replace_words(text: str, rng: random.Random, vocabulary: Sequence[str]) -> str:
        """Replace words by others of the same document, remove some, or insert some.

        The outermost words are only replaced: a quote without its first word is a shorter quote, not a wrong one.
        """
        tokens = re.findall(r"\S+|\s+", text)
        numbers = [n for n, token in enumerate(tokens) if re.search(r"\w", token)]
        for number in rng.sample(numbers, min(count, len(numbers))):
            other = rng.choice(vocabulary)
            inside = numbers[0] < number < numbers[-1]
            match rng.choices(("replace", "drop", "add"), (6, 2, 2) if inside else (1, 0, 0))[0]:
                case "replace":
                    tokens[number] = other
                case "drop":
                    tokens[number] = ""
                case _:
                    tokens[number] = f"{tokens[number]} {other}"
        return "".join(tokens)

    return replace_words


def ellipsis(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """The middle left out."""
    words = re.findall(r"\S+\s*", text)
    head = rng.randint(4, max(4, len(words) // 3))
    tail = rng.randint(4, max(4, len(words) // 3))
    return "".join(words[:head]).rstrip() + rng.choice((" … ", "... ", " [...] ")) + "".join(words[-tail:]).rstrip()


def mixed(text: str, rng: random.Random, vocabulary: Sequence[str]) -> str:
    text = wrong_words(1)(text, rng, vocabulary)
    for noise in rng.sample((reflow, smart_quotes, stripped), 2):
        text = noise(text, rng, vocabulary)
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
"""Code blocks have no markup to remove or to escape."""
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
    def after_bullet(self) -> int:
        """The offset after a bullet or heading mark: a quote without the mark does not include it."""
        bullet = _BULLET.match(self.text)
        return self.start + bullet.end() if bullet else self.start


def paragraphs(document: str, min_length: int = 40, min_words: int = 8, *, copies: bool = False) -> list[Paragraph]:
    """The paragraphs of a document that are long enough to be quoted and occur once.

    A code block with its fences is one paragraph. Paragraphs that differ only in formatting count as copies, which are
    left out unless `copies` is true.
    """
    paragraphs: list[Paragraph] = []
    stripped_document = _without_formatting(document)
    for start, end in _blocks(document):
        text = document[start:end]
        long_enough = len(text) >= min_length and len(text.split()) >= min_words
        if long_enough and (copies or stripped_document.count(_without_formatting(text)) == 1):
            paragraphs.append(Paragraph(start, end, text))
    return paragraphs


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


def _without_formatting(text: str) -> str:
    text = re.sub(r"\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\[[^\]\n]*\])", "]", text)
    return re.sub(r"[\s*_`~>#+\\\[\]-]+", "", text)
