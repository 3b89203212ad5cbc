"""Recall and false positives of the crowd's moderation, and its cost per message.

Two generated sets (bench/lib/evasion_messages.py) with seeds that were not used for tuning; and the whole check
(normalisation, lists, links, redaction) on ordinary chat, in CPU time of one core.
"""

from __future__ import annotations

import collections
import random
import time

from bench.lib.evasion_messages import evasions, innocents
from bench.lib.report import arguments, finish, log
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.settings import SHIPPED_CONFIGS

_SEED = 41_173
_CHAT = (
    "hello there chat how are you",
    "did he just eat the health potion at full health",
    "LUL that was so good",
    "we need 20 more subs for the goal!!",
    "no way he makes that jump lmao",
    "@nora_k left path left path left path",
    "noooooo",
    "I have played this 3 times and I still do not know what the lever does",
    "gg",
    "someone clip that please",
)


def main() -> None:
    options = arguments(__doc__).parse_args()
    lists = read_wordlists([SHIPPED_CONFIGS / "moderation"])
    moderator = Moderator(lists)
    words = sorted(
        {entry.text for each in lists if each.severity > 1 for entry in each.entries if entry.text.isalpha()}
    )
    words = [word for word in words if len(word) >= 4]
    many = 4_000 if options.quick else 20_000
    missed: collections.Counter[str] = collections.Counter()
    tried: collections.Counter[str] = collections.Counter()
    for trick, text in evasions(words, _SEED, many):
        tried[trick] += 1
        missed[trick] += moderator.check(text).refusal is None
    for trick in sorted(tried):
        log(f"{trick:>28}: {1 - missed[trick] / tried[trick]:7.2%} of {tried[trick]} caught")
    stopped = [text for text in innocents(_SEED + 1, many) if moderator.check(text).refusal is not None]
    log(f"innocent messages stopped: {len(stopped)} of {many}; such as {sorted(set(stopped))[:3]}")
    chance = random.Random(_SEED)
    chat = [chance.choice(_CHAT) for _ in range(many)]
    started = time.process_time()
    for text in chat:
        moderator.check(text)
    seconds = time.process_time() - started
    finish(
        {
            "evasion_recall": round(1 - missed.total() / tried.total(), 4),
            "false_positives": round(len(stopped) / many, 4),
            "msgs_per_core_s": round(many / seconds),
        }
    )


if __name__ == "__main__":
    main()
