"""Locate real paragraphs by quotes with the errors that models make.

A span is correct if it begins and ends exactly where the paragraph does (after its bullet, if the quote has none), or
if the quote is a shorter part of the paragraph without errors. `wrong_place` counts spans outside the paragraph, or
with less than half of their union in common.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.lib.quote_noise import FORMATTING, NOISES, NOT_IN_CODE, WORDS, Paragraph, paragraphs
from bench.lib.report import arguments, finish, log, percentile, progress
from coterie.modes.draft.diff import Span
from coterie.modes.draft.locate import Match, locate

DATA = "../shared/data/edits_rfcs.jsonl.gz"


def histories(path: str) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def judge(document: str, quote: str, result: object, paragraph: Paragraph, without_bullet: bool) -> str:
    if not isinstance(result, Match):
        return result.reason  # type: ignore[attr-defined, no-any-return]
    truth = Span(paragraph.after_bullet if without_bullet else paragraph.start, paragraph.end)
    literal = document[result.span.start : result.span.end] == quote and truth.contains(result.span)
    if result.span == truth or literal:
        return "correct"
    shared = min(result.span.end, truth.end) - max(result.span.start, truth.start)
    whole = max(result.span.end, truth.end) - min(result.span.start, truth.start)
    return "wrong edges" if shared > 0.5 * whole else "wrong place"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="?", default=DATA)
    parser.add_argument("--per-document", type=int, default=60, help="paragraphs of each document, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", default="", help="print the quotes with this verdict, such as 'wrong place'")
    options = parser.parse_args()
    documents = [history["versions"][-1] for history in histories(str(Path(options.data)))]
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in NOISES}
    times: list[float] = []
    rng = random.Random(options.seed)
    for number, document in enumerate(documents):
        candidates = paragraphs(document)
        sample = rng.sample(candidates, min(len(candidates), 6 if options.quick else options.per_document))
        vocabulary = document.split()
        for paragraph in sample:
            for name, noise in NOISES.items():
                if name == "ellipsis" and len(paragraph.text.split()) < 20:
                    continue  # too short to leave out the middle
                if paragraph.has_code and name in NOT_IN_CODE:
                    continue
                quote = noise(paragraph.text, rng, vocabulary)
                started = time.perf_counter()
                found = locate(document, quote)
                times.append((time.perf_counter() - started) * 1_000)
                without_bullet = paragraph.after_bullet > paragraph.start and not _has_bullet(quote, paragraph)
                verdict = judge(document, quote, found, paragraph, without_bullet)
                verdicts[name][verdict] += 1
                if options.show and verdict == options.show:
                    log(f"--- {name}: {found}\n{quote!r}\n{paragraph}")
        progress(number + 1, len(documents), "documents")
    shares = {
        name: {v: round(n / count.total(), 5) for v, n in count.most_common()} for name, count in verdicts.items()
    }
    for name, share in shares.items():
        log(f"{name:>16}: {verdicts[name].total()} quotes, {share}")
    total = sum(count.total() for count in verdicts.values())
    finish(
        {
            "quotes": total,
            "formatting_correct": _share(verdicts, FORMATTING, "correct"),
            "words_correct": _share(verdicts, WORDS, "correct"),
            "wrong_place": _share(verdicts, tuple(NOISES), "wrong place"),
            "p50_ms": round(percentile(times, 0.5), 2),
            "p95_ms": round(percentile(times, 0.95), 2),
            "max_ms": round(max(times), 2),
            "by_noise": shares,
        }
    )


def _has_bullet(quote: str, paragraph: Paragraph) -> bool:
    bullet = paragraph.text[: paragraph.after_bullet - paragraph.start].strip()
    return quote.replace("\\", "").lstrip().startswith(bullet)


def _share(verdicts: dict[str, Counter[str]], names: tuple[str, ...], verdict: str) -> float:
    return round(sum(verdicts[n][verdict] for n in names) / sum(verdicts[n].total() for n in names), 5)


if __name__ == "__main__":
    main()
