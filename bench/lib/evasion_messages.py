"""Generated messages that try to evade a filter, and innocent ones that look similar.

The tables are based on how people disguise words, not on the filter's rules: letters of other scripts by Unicode name,
mathematical alphabets, combining marks. Words of the first set are on the lists; those of the second are on none.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable

_OFFERS = (
    *("you are a {} and you know it", "what a {} honestly", "{}", "oh {} not again", "stop being such a {}"),
    *("lol {} chat", "he said {} twice"),
)
_STYLES = (
    "MATHEMATICAL BOLD SMALL",
    "MATHEMATICAL SANS-SERIF SMALL",
    "MATHEMATICAL SCRIPT SMALL",
    "FULLWIDTH LATIN SMALL LETTER",
)
_OTHERS = {
    "a": "аɑα@4",
    "b": "8Ьβ",
    "c": "сϲᴄ",
    "d": "ԁd",
    "e": "еє3",
    "f": "ƒf",
    "g": "ɡ9",
    "h": "һհ",
    "i": "іı1!|",
    "j": "јϳ",
    "k": "кκ",
    "l": "1|ⅼ",
    "m": "мⅿ",
    "n": "ո",
    "o": "оοօ0",
    "p": "рρ",
    "q": "ԛ",
    "r": "гʀ",
    "s": "ѕ5$",
    "t": "тτ7+",
    "u": "υսц",
    "v": "νѵ",
    "w": "ѡԝ",
    "x": "хχ",
    "y": "уγ",
    "z": "ᴢ",
}
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
_MARKS = "\u0301\u0308\u0336\u0332\u0323"


def _case(word: str, chance: random.Random) -> str:
    return "".join(chance.choice((letter.upper(), letter)) for letter in word)


def _alike(word: str, chance: random.Random) -> str:
    changed = [chance.choice(_OTHERS[c]) if c in _OTHERS and chance.random() < 0.45 else c for c in word]
    if sum(new.isdigit() for new in changed) > len(word) // 2:
        return _styled(word, chance)
    return "".join(changed)


def _styled(word: str, chance: random.Random) -> str:
    style = chance.choice(_STYLES)
    out = []
    for letter in word:
        try:
            out.append(unicodedata.lookup(f"{style} {letter.upper()}"))
        except KeyError:
            out.append(letter)
    return "".join(out)


def _invisible(word: str, chance: random.Random) -> str:
    return "".join(c + (chance.choice(_INVISIBLE) if chance.random() < 0.6 else "") for c in word)


def _marked(word: str, chance: random.Random) -> str:
    return "".join(c + (chance.choice(_MARKS) if chance.random() < 0.6 else "") for c in word)


def _stretched(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word))
    return word[:place] + word[place] * chance.randint(3, 7) + word[place + 1 :]


def _spaced(word: str, chance: random.Random) -> str:
    return chance.choice((" ", ".", "-", "_", "  ", " . ", "*")).join(word)


def _dotted(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word))
    return word[:place] + chance.choice((".", "-", "_", "~", "'", "/")) + word[place:]


def _starred(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word) - 1)
    return word[:place] + "*" + word[place + 1 :]


TRICKS: dict[str, Callable[[str, random.Random], str]] = {
    "case": _case,
    "look-alikes": _alike,
    "styled letters": _styled,
    "invisible": _invisible,
    "marks": _marked,
    "stretched": _stretched,
    "spaced": _spaced,
    "punctuation": _dotted,
    "starred": _starred,
}
_PAIRS = (
    ("case", "invisible"),
    ("look-alikes", "stretched"),
    ("case", "spaced"),
    ("marks", "spaced"),
    ("styled letters", "invisible"),
)


def evasions(words: list[str], seed: int, many: int) -> list[tuple[str, str]]:
    """Pairs of a trick's name and a message that uses it."""
    chance = random.Random(seed)
    messages = []
    for number in range(many):
        word = chance.choice(words)
        if number % 4 == 3:
            first, second = chance.choice(_PAIRS)
            name, disguised = f"{first} + {second}", TRICKS[second](TRICKS[first](word, chance), chance)
        else:
            name = chance.choice(list(TRICKS))
            disguised = TRICKS[name](word, chance)
        messages.append((name, chance.choice(_OFFERS).format(disguised)))
    return messages


_TOWNS = tuple(
    """
    Scunthorpe Penistone Clitheroe Lightwater Cockermouth Essex Sussex Middlesex Hancock Dickens Dickinson
    Cockburn Peacock Babcock Hitchcock Matsushita Wankel Arsenal Assisi Titisee Cumbria Cumberland Coxwold
    Nigeria Niger Swansea Pissarro Fuchs Fuku Hellas Michelle Mitchell Dambusters Hoover Sodbury Kentucky
    """.split()  # noqa: SIM905 - a list of two hundred quoted words is not easier to read
)
_WORDS = tuple(
    """
    assassin assassination class classic classy glass grass pass passage passion bass embassy assume assign
    assist associate assault assemble brass cassette mass massage harass compass cockpit cockatoo cocktail
    cockroach peacock hancock shuttlecock weathercock woodcock cumulative cucumber document accumulate
    circumstance cumin incumbent scum analysis analyst canal banal therapist grapefruit drapes scrape trapeze
    title titan titanium constitution competition entitled appetite hello shell seashell michelle hellenic
    nutshell eggshell bombshell dictionary predicate medick dickcissel verdict prickly cricket pricked
    basement basic habit orbit bitumen arbiter whorl shoreline sextant sextet essence niggle niggling
    sniggering denigrate enigma snigger vinegar retardant spicy spice conspicuous auspicious suspicion
    despicable raccoon tycoon cocoon buttercup button butter rebuttal buttress flag fragile saxophone
    pissaladiere mississippi hotshot shiitake mishit sushi bushido cushion pushing sitting twitter wrist
    twattle damnation gobbledygook chinkapin kinky skyscraper hydrant sodium soda sodden bloodily arsenic
    parse arsenal coarse rehearse country discount county scrap scraper crappie swank swanky fuchsia refuse
    refuge confuse perfect magnum cumquat evocative advocate tomtit titmouse titlark bluetit uptight
    """.split()  # noqa: SIM905 - a list of two hundred quoted words is not easier to read
)
_SENTENCES = (
    "we are driving to {} tomorrow",
    "{} is my favourite, change my mind",
    "did anyone else think about {} just now",
    "I wrote {} on the whiteboard and nobody laughed",
    "{} and {} walk into a bar",
    "chat spells {} faster than I do",
    "my cat is called {}",
    "the word of the day is {}!",
    "{}? {}.",
    "so much {}, so little time",
)
_CODES = (
    "the Samsung A55 is fine, the S24 is better",
    "it cost 455 gold and 7175 silver",
    "room 5417, floor 8",
    "U S A U S A U S A",
    "A S A P please",
    "gg e z",
    "w a i t for it",
    "l e t ' s go",
    "push it to the limit, then pass it",
    "as soon as I sit",
    "h e l l o chat",
    "it's 4:55 already",
    "b4 we go, gr8 run m8",
    "4 a moment I saw 1 t",
    "version 1.5.5h is out",
    "soooooo good, looooool",
    "yesssss passsss the ball",
    "n o w a y",
    "I am at 99+ tabs",
    "who are you? who, re: the raid?",
    "is it shut? it is shut",
    "what is hit? this hit",
)


def innocents(seed: int, many: int) -> list[str]:
    """Ordinary messages about towns, words and codes that hold other words' letters."""
    chance = random.Random(seed)
    messages = []
    for number in range(many):
        if number % 10 == 9:
            messages.append(chance.choice(_CODES))
            continue
        sentence = chance.choice(_SENTENCES)
        words = [chance.choice(chance.choice((_TOWNS, _WORDS, _WORDS))) for _ in range(sentence.count("{}"))]
        text = sentence.format(*words)
        style = chance.random()
        messages.append(
            text.upper() if style < 0.1 else text.title() if style < 0.15 else text + "!!" if style < 0.3 else text
        )
    return messages
