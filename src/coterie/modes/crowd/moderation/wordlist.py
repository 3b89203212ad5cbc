"""Moderation word lists and the text folding that undoes disguised spellings.

A list is a text file with one entry per line and one severity. `word` matches that word, `word*` the word with any
ending, `*word*` the letters anywhere; an entry with a space is a phrase. A list may be encoded in ROT13.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import ahocorasick_rs

from coterie.base.errors import ConfigError

# Disguised spellings: look-alike letters, digits for letters, stretched and spaced words. A text with hints of one is
# matched in several alternative readings. Readings keep word boundaries, so that "Scunthorpe" is not a match.
_LOOK_ALIKES = dict(
    pair
    for look, read in (
        ("авгезиіїкӏмнопрсѕтуфхцчьыјһԁԛԝґєѵѡ", "abreeuiiklmhonpcstyoxuubbjhdqwrevw"),  # Cyrillic
        ("αβγεζηικμνορσςτυχωϲϳ", "abyeznikuvopostuxwcj"),  # Greek
        ("ᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdeghijklmnoprstuvwyz"),  # small capitals
        ("ıłøđħŧƒðɑɡʋʌəɛɔɨʃŋþƈƙɠɦʂʈɳɱɾʐɓ", "ilodhtfdaguaeeoisnpckghstnmrzb"),  # hooks and strokes
        ("ոսօհցքꭺꭰꮯꮪ⁄", "nuohgpadcs/"),  # Armenian, Cherokee and others that pass for Latin
    )
    for pair in zip(look, read, strict=True)
)
_LOOK_ALIKES |= {"ß": "ss", "æ": "ae", "œ": "oe", "ё": "e"}
_SYMBOLS = {
    "@": "a",
    "$": "s",
    "€": "e",
    "£": "l",
    "!": "i",
    "|": "i",
    "+": "t",
    "¡": "i",
    "¢": "c",
    "§": "s",
    "¥": "y",
}
_DIGITS = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "6": "g", "7": "t", "8": "b", "9": "g"}

_FOLD = str.maketrans(_LOOK_ALIKES)
_LEET = str.maketrans({**_SYMBOLS, **_DIGITS})
_AS_L = str.maketrans({**_SYMBOLS, **_DIGITS, "1": "l", "|": "l", "!": "l"})
_DISGUISED = re.compile(
    r"""
      [a-z][^a-z\s'][^a-z\s]*[a-z]        # something between two letters: a digit, a dot, a star
    | [@$€£|+0-9][a-z] | [a-z][@$€£|+0-9]  # a sign or digit beside a letter
    | ![a-z] | [@$][@$]                 # an exclamation before a letter, signs alone
    | ([a-z])\1\1                       # stretched
    | '(?!(?:ll|s|d|re|ve|m|t|em|n)\b)[a-z]  # an apostrophe that shortens nothing
    | (?<![a-z'])[a-z][\s._*~-]+[a-z](?![a-z])  # letters one by one
    """,
    re.VERBOSE,
)
_FOR_LETTERS = "@$|+0123456789"
DISGUISE_HINTS = (
    *(letter * 3 for letter in ascii_lowercase),
    *(sign + letter for sign in _FOR_LETTERS + "'!\"#%&()*,-./:;<=>?\\^_`{}~[]" for letter in ascii_lowercase),
    *(letter + sign for letter in ascii_lowercase for sign in _FOR_LETTERS),
    *("@@", "@$", "$@", "$$"),
    *(f" {letter} " for letter in ascii_lowercase if letter not in "ai"),
    *(" a a ", " a i ", " i a ", " i i ", "  "),
)
"""Every disguise in ASCII contains one of these, in a folded text padded with a space on both sides."""
_INSIDE = re.compile(r"(?<=[a-z0-9@$!|])(?!'(?:ll|s|d|re|ve|m|t|em|n)\b)[^\w\s@$!|+]+(?=[a-z0-9@$!|])|_")
_STRETCHED = re.compile(r"(.)\1{2,}")
_BEFORE_TWO_MORE = re.compile(r"(.)(?=\1\1)")
_BEFORE_ANOTHER = re.compile(r"(.)(?=\1)")
_SPACED = re.compile(r"(?<![a-z0-9'])(?:[a-z0-9@$!][^a-z0-9@$!']+){2,}[a-z0-9@$!](?![a-z0-9])")
_GAPS = re.compile(r"[^a-z0-9@$!]+")
_SIGNS = "0-9@$€£!|+¡¢§¥"
_WORD_OF_SIGNS = re.compile(rf"[a-z]*[{_SIGNS}][a-z{_SIGNS}]*")
_ENDING_SIGNS = re.compile(r"!+(?![a-z0-9@$])")
_RUNS_OF_SIGNS = re.compile(r"([0-9@$!|+])\1{2,}")


def fold(text: str) -> str:
    """Lower case, without invisible characters and diacritics, look-alikes replaced by Latin letters."""
    if text.isascii() and text.isprintable():
        return text.lower()
    # Translate before and after: some letters decompose into something other than what they look like.
    plain = unicodedata.normalize("NFKD", text.lower().translate(_FOLD)).casefold()
    kept = "".join([letter for letter in plain if unicodedata.category(letter) not in _DROPPED])
    return unicodedata.normalize("NFKD", kept.translate(_FOLD))


_DROPPED = frozenset(["Mn", "Me", "Cf", "Cc", "Cn", "Co"])


def alternative_readings(plain: str) -> Iterator[str]:
    """Yield other readings of a folded text that has some of `DISGUISE_HINTS` or is not ASCII."""
    if not _DISGUISED.search(plain):
        return
    seen = {plain}
    for reading in _other_readings(plain):
        if reading not in seen:
            seen.add(reading)
            yield reading


def _other_readings(plain: str) -> Iterator[str]:
    # Without spaced letters both are the text itself.
    for joined in dict.fromkeys((_SPACED.sub(_join_letters, plain), _SPACED.sub(_join_after_article, plain))):
        for signs in (_LEET, _AS_L) if "1" in joined or "|" in joined or "!" in joined else (_LEET,):
            letters = _replace_signs(joined, signs)
            unseparated = _INSIDE.sub("", letters)
            yield letters
            yield unseparated
            unrepeated = _BEFORE_ANOTHER.sub("", unseparated)
            if unrepeated != unseparated and _STRETCHED.search(unseparated):
                yield _BEFORE_TWO_MORE.sub("", unseparated)
                yield _STRETCHED.sub(r"\1", unseparated)
            yield unrepeated


def _join_letters(letters: re.Match[str]) -> str:
    return f" {_GAPS.sub('', letters[0])} "


def _join_after_article(letters: re.Match[str]) -> str:
    """Join spaced letters, keeping a leading article as its own word: a w o r d."""
    joined = _GAPS.sub("", letters[0])
    return f" {joined[0]} {joined[1:]} " if joined[0] in "ai" else f" {joined} "


def _replace_signs(text: str, signs: dict[int, str]) -> str:
    """Replace signs and digits by letters in words with enough letters. "A55" stays as it is."""

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        digits = sum(map(str.isdigit, word))
        letters = sum(map(str.isalpha, word))
        return word if digits > letters or not (letters or len(word) > 2) else word.translate(signs)

    if "!" in text:
        text = _ENDING_SIGNS.sub(" ", text)
    return _WORD_OF_SIGNS.sub(replace, _RUNS_OF_SIGNS.sub(r"\1", text))


_HEADER = re.compile(r"#\s*(severity|encoding|reason):\s*(.+)")
MASKS = ("*", "#")
"""Characters that stand for an omitted letter."""
_ENDINGS = frozenset(["", "s", "es", "z"])


@dataclass(frozen=True)
class WordlistEntry:
    text: str
    anywhere: bool
    any_ending: bool
    list: str
    severity: int
    reason: str


@dataclass(frozen=True)
class Wordlist:
    name: str
    severity: int
    reason: str
    entries: tuple[WordlistEntry, ...]


def read_wordlists(folders: Iterable[Path]) -> list[Wordlist]:
    """Read every list in these folders. A later folder's file replaces an earlier one of the same name."""
    files = {file.name: file for folder in folders for file in sorted(folder.glob("*.txt"))}
    return [_read(file) for _, file in sorted(files.items())]


def _read(file: Path) -> Wordlist:
    header = {"severity": "2", "encoding": "plain", "reason": f"It is on the list {file.stem}."}
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if field := _HEADER.match(line):
            header[field[1]] = field[2].strip()
        elif line.strip() and not line.startswith("#"):
            words.append(line.strip())
    if header["severity"] not in ("1", "2", "3") or header["encoding"] not in ("plain", "rot13"):
        raise ConfigError(
            f"The moderation list {file} has a severity or an encoding that is unknown.",
            "Write `# severity: 1`, 2 or 3, and `# encoding: plain` or rot13.",
        )
    severity = int(header["severity"])
    if header["encoding"] == "rot13":
        words = [codecs.decode(word, "rot13") for word in words]
    entries = tuple(
        WordlistEntry(
            fold(word.strip("*")), word.startswith("*"), word.endswith("*"), file.stem, severity, header["reason"]
        )
        for word in words
    )
    return Wordlist(file.stem, severity, header["reason"], entries)


class Matcher:
    """All lists in one automaton; the cost of a match does not depend on their length."""

    def __init__(self, lists: Iterable[Wordlist]) -> None:
        self.entries: list[WordlistEntry] = [entry for each in lists for entry in each.entries if entry.text]
        patterns = [entry.text for entry in self.entries]
        self._automaton = ahocorasick_rs.AhoCorasick(patterns) if patterns else None
        self._by_length: dict[int, list[WordlistEntry]] = {}
        for entry in self.entries:
            self._by_length.setdefault(len(entry.text), []).append(entry)

    def find(self, reading: str) -> WordlistEntry | None:
        """Return the most severe entry in a reading."""
        if self._automaton is None:
            return None
        return self.worst(reading, self._automaton.find_matches_as_indexes(reading, overlapping=True))

    def worst(self, reading: str, matches: Iterable[tuple[int, int, int]]) -> WordlistEntry | None:
        """Return the most severe of the matches, given as entry index, start and end."""
        worst: WordlistEntry | None = None
        for index, start, end in matches:
            entry = self.entries[index]
            if (worst is None or entry.severity > worst.severity) and (
                entry.anywhere or _is_whole_word(reading, start, end, entry)
            ):
                worst = entry
        return worst

    def find_masked(self, word: str) -> WordlistEntry | None:
        """Return the entry that a word with masked letters stands for, if at least two letters are left."""
        if sum(letter.isalpha() for letter in word) < 2:
            return None
        for entry in self._by_length.get(len(word), ()):
            if all(mine in ("*", "#", "_") or mine == theirs for mine, theirs in zip(word, entry.text, strict=True)):
                return entry
        return None


def _is_whole_word(reading: str, start: int, end: int, entry: WordlistEntry) -> bool:
    if start and (reading[start - 1].isalnum()):
        return False
    if entry.any_ending or end == len(reading) or not reading[end].isalnum():
        return True
    stop = end
    while stop < len(reading) and reading[stop].isalnum():
        stop += 1
    return reading[end:stop] in _ENDINGS
