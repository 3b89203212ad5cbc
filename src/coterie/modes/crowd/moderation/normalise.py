"""Reading through disguises: case, marks, invisible characters, look-alike letters, digits for letters, stretched and
spaced words.

A plain sentence is recognised by one quick look (`Look`) and read only once. Where there is something to see through,
further readings are made; what is forbidden in any of them is forbidden. Readings keep word boundaries wherever a
person would see one, so that Scunthorpe stays a town.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from string import ascii_lowercase

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
"""What no disguise in ASCII can do without, in a folded text with a blank before and after it."""
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
    """Lower case, without invisible characters and marks, look-alikes as the letters they look like."""
    if text.isascii() and text.isprintable():
        return text.lower()
    # Before as well as after: some letters look like one thing and decompose into another.
    plain = unicodedata.normalize("NFKD", text.lower().translate(_FOLD)).casefold()
    kept = "".join([letter for letter in plain if unicodedata.category(letter) not in _DROPPED])
    return unicodedata.normalize("NFKD", kept.translate(_FOLD))


_DROPPED = frozenset(["Mn", "Me", "Cf", "Cc", "Cn", "Co"])


def alternative_readings(plain: str) -> Iterator[str]:
    """The other ways a person might read a folded text that has some of `HINTS` or is not all ASCII."""
    if not _DISGUISED.search(plain):
        return
    seen = {plain}
    for reading in _other_readings(plain):
        if reading not in seen:
            seen.add(reading)
            yield reading


def _other_readings(plain: str) -> Iterator[str]:
    spaced = _SPACED.search(plain) is not None
    ways = dict.fromkeys((_SPACED.sub(_joined, plain), _SPACED.sub(_after_article, plain))) if spaced else (plain,)
    for joined in ways:
        for signs in (_LEET, _AS_L) if "1" in joined or "|" in joined or "!" in joined else (_LEET,):
            unsigned = _unsigned(joined, signs)
            tight = _INSIDE.sub("", unsigned)
            yield unsigned
            yield tight
            single = _BEFORE_ANOTHER.sub("", tight)
            if single != tight and _STRETCHED.search(tight):
                yield _BEFORE_TWO_MORE.sub("", tight)
                yield _STRETCHED.sub(r"\1", tight)
            yield single


def _joined(letters: re.Match[str]) -> str:
    return f" {_GAPS.sub('', letters[0])} "


def _after_article(letters: re.Match[str]) -> str:
    """The same, where the first letter is a word of its own: a w o r d."""
    one = _GAPS.sub("", letters[0])
    return f" {one[0]} {one[1:]} " if one[0] in "ai" else f" {one} "


def _unsigned(text: str, signs: dict[int, str]) -> str:
    """Signs and digits as letters, where a word has letters enough to be one. A55 is a telephone."""

    def read(found: re.Match[str]) -> str:
        word = found[0]
        digits = sum(map(str.isdigit, word))
        letters = sum(map(str.isalpha, word))
        return word if digits > letters or not (letters or len(word) > 2) else word.translate(signs)

    if "!" in text:
        text = _ENDING_SIGNS.sub(" ", text)
    return _WORD_OF_SIGNS.sub(read, _RUNS_OF_SIGNS.sub(r"\1", text))
