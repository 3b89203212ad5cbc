"""Real histories, replayed over pending proposals: is each fresh or stale exactly when it should be? F7, F8

Every paragraph of a version is a pending proposal. The document then becomes a later version (several distances apart)
and goes back again. What stands once in both must be fresh and in its place; what is not in the new one must be stale;
of what stands several times no two may point at one place. Then the blocks of a real change are accepted in random
orders, each mapped through the ones before.
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

from bench.lib.quote_noise import paragraphs
from bench.lib.report import arguments, finish, log, percentile, progress
from bench.locate import DATA, histories
from coterie.modes.draft.anchors import Anchor, anchor_at, move_anchors
from coterie.modes.draft.diff import Span, TextEdit, apply_edits, edits_between

DISTANCES = (1, 2, 3, 5, 8, 13, 20)


class Tally:
    edits = checks = fresh_but_touched = stale_but_untouched = came_back = wrong_diffs = 0
    orders = exact_orders = 0


def judge(tally: Tally, anchors: list[Anchor], old: str, new: str) -> None:
    taken: set[tuple[int, int]] = set()
    for anchor in anchors:
        tally.checks += 1
        there = new.count(anchor.exact)
        if anchor.fresh:
            span = (anchor.start, anchor.end)
            right = new[anchor.start : anchor.end] == anchor.exact and span not in taken
            tally.fresh_but_touched += not right
            taken.add(span)
        elif there == 1 and old.count(anchor.exact) == 1:
            tally.stale_but_untouched += 1


def replay(tally: Tally, old: str, new: str) -> None:
    edits, back = edits_between(old, new), edits_between(new, old)
    tally.edits += len(edits) + len(back)
    tally.wrong_diffs += apply_edits(old, edits) != new or apply_edits(new, back) != old
    pending = [anchor_at(old, Span(p.start, p.end)) for p in paragraphs(old, 1, 1, copies=True)]
    after = move_anchors(pending, old, new, edits)
    judge(tally, after, old, new)
    again = move_anchors(after, new, old, back)
    for anchor, then in zip(again, after, strict=True):
        tally.checks += 1
        tally.came_back += anchor.fresh and not then.fresh
        tally.stale_but_untouched += not anchor.fresh and old.count(anchor.exact) == 1
        tally.fresh_but_touched += anchor.fresh and old[anchor.start : anchor.end] != anchor.exact


def any_order(tally: Tally, old: str, new: str, chance: random.Random) -> None:
    blocks = edits_between(old, new)
    if len(blocks) < 2:
        return
    for _ in range(2):
        tally.orders += 1
        text, waiting = old, [(anchor_at(old, Span(b.start, b.end)), b.text) for b in blocks]
        chance.shuffle(waiting)
        while waiting:
            (anchor, proposed), *rest = waiting
            if not anchor.fresh or text[anchor.start : anchor.end] != anchor.exact:
                break
            edit = TextEdit(anchor.start, anchor.end, proposed)
            after = apply_edits(text, [edit])
            places = move_anchors([one for one, _ in rest], text, after, [edit])
            waiting = [(place, words) for place, (_, words) in zip(places, rest, strict=True)]
            text = after
        tally.exact_orders += text == new


def recheck_time(documents: list[list[str]], chance: random.Random) -> list[float]:
    """200 pending proposals in a large document, through a real edit: comparing, mapping, judging.

    The best of five each time: what else the machine does is not measured here.
    """
    took: list[float] = []
    for versions in sorted(documents, key=lambda v: -len(v[-1]))[:8]:
        for old, new in list(pairwise(versions))[-10:]:
            starts = [chance.randrange(max(1, len(old) - 200)) for _ in range(200)]
            pending = [anchor_at(old, Span(s, s + chance.randint(20, 200))) for s in starts]
            times: list[float] = []
            for _ in range(5):
                began = time.perf_counter()
                move_anchors(pending, old, new, edits_between(old, new))
                times.append((time.perf_counter() - began) * 1_000)
            took.append(min(times))
    return took


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="?", default=DATA)
    options = parser.parse_args()
    documents = [history["versions"] for history in histories(str(Path(options.data)))]
    if options.quick:
        documents = documents[::5]
    tally, chance = Tally(), random.Random(4)
    for number, versions in enumerate(documents):
        for distance in DISTANCES:
            for old, new in zip(versions, versions[distance:], strict=False):
                replay(tally, old, new)
                any_order(tally, old, new, chance)
        progress(number + 1, len(documents), "documents")
    took = recheck_time(documents, chance)
    log(f"{tally.checks} judgements; {tally.came_back} were stale and fresh again; {tally.orders} orders of accepting")
    finish(
        {
            "edits": tally.edits,
            "checks": tally.checks,
            "fresh_but_touched": tally.fresh_but_touched,
            "stale_but_untouched": tally.stale_but_untouched,
            "came_back": tally.came_back,
            "wrong_diffs": tally.wrong_diffs,
            "any_order_exact": round(tally.exact_orders / tally.orders, 5) if tally.orders else None,
            "orders": tally.orders,
            "recheck_200_ms": round(percentile(took, 0.95), 2),
            "recheck_200_max_ms": round(max(took), 2),
        }
    )


if __name__ == "__main__":
    main()
