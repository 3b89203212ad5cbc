"""Replay real document histories over pending proposals, and count those that are wrongly fresh or stale.

Every paragraph of a version is a pending proposal. The document then changes to a later version, at several distances,
and back. Text that is in both once must be fresh and at its position; text that is not in the new one must be stale; no
two copies may have the same position. Then the edits of a real change are accepted in random orders, each mapped
through the ones before.
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

from bench.lib.quote_noise import paragraphs
from bench.lib.report import arguments, finish, log, percentile, progress
from bench.locate import DATA, histories
from coterie.modes.draft.diff import Span, TextEdit, apply_edits, edits_between
from coterie.modes.draft.locate import Anchor, anchor_at, move_anchors

DISTANCES = (1, 2, 3, 5, 8, 13, 20)


class Tally:
    edits = checks = fresh_but_touched = stale_but_untouched = came_back = wrong_diffs = 0
    orders = exact_orders = 0


def check_anchors(tally: Tally, anchors: list[Anchor], old: str, new: str) -> None:
    positions: set[tuple[int, int]] = set()
    for anchor in anchors:
        tally.checks += 1
        count = new.count(anchor.exact)
        if anchor.fresh:
            span = (anchor.start, anchor.end)
            correct = new[anchor.start : anchor.end] == anchor.exact and span not in positions
            tally.fresh_but_touched += not correct
            positions.add(span)
        elif count == 1 and old.count(anchor.exact) == 1:
            tally.stale_but_untouched += 1


def replay(tally: Tally, old: str, new: str) -> None:
    edits, back = edits_between(old, new), edits_between(new, old)
    tally.edits += len(edits) + len(back)
    tally.wrong_diffs += apply_edits(old, edits) != new or apply_edits(new, back) != old
    pending = [anchor_at(old, Span(p.start, p.end)) for p in paragraphs(old, 1, 1, copies=True)]
    after = move_anchors(pending, old, new, edits)
    check_anchors(tally, after, old, new)
    again = move_anchors(after, new, old, back)
    for anchor, then in zip(again, after, strict=True):
        tally.checks += 1
        tally.came_back += anchor.fresh and not then.fresh
        tally.stale_but_untouched += not anchor.fresh and old.count(anchor.exact) == 1
        tally.fresh_but_touched += anchor.fresh and old[anchor.start : anchor.end] != anchor.exact


def accept_in_random_order(tally: Tally, old: str, new: str, rng: random.Random) -> None:
    blocks = edits_between(old, new)
    if len(blocks) < 2:
        return
    for _ in range(2):
        tally.orders += 1
        text, waiting = old, [(anchor_at(old, Span(b.start, b.end)), b.text) for b in blocks]
        rng.shuffle(waiting)
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


def recheck_time(documents: list[list[str]], rng: random.Random) -> list[float]:
    """The time to map 200 pending proposals of a large document through a real edit, the best of five runs."""
    best: list[float] = []
    for versions in sorted(documents, key=lambda v: -len(v[-1]))[:8]:
        for old, new in list(pairwise(versions))[-10:]:
            starts = [rng.randrange(max(1, len(old) - 200)) for _ in range(200)]
            pending = [anchor_at(old, Span(s, s + rng.randint(20, 200))) for s in starts]
            times: list[float] = []
            for _ in range(5):
                began = time.perf_counter()
                move_anchors(pending, old, new, edits_between(old, new))
                times.append((time.perf_counter() - began) * 1_000)
            best.append(min(times))
    return best


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="?", default=DATA)
    options = parser.parse_args()
    documents = [history["versions"] for history in histories(str(Path(options.data)))]
    if options.quick:
        documents = documents[::5]
    tally, rng = Tally(), random.Random(4)
    for number, versions in enumerate(documents):
        for distance in DISTANCES:
            for old, new in zip(versions, versions[distance:], strict=False):
                replay(tally, old, new)
                accept_in_random_order(tally, old, new, rng)
        progress(number + 1, len(documents), "documents")
    times = recheck_time(documents, rng)
    log(f"{tally.checks} checks; {tally.came_back} were stale and fresh again; {tally.orders} orders of accepting")
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
            "recheck_200_ms": round(percentile(times, 0.95), 2),
            "recheck_200_max_ms": round(max(times), 2),
        }
    )


if __name__ == "__main__":
    main()
