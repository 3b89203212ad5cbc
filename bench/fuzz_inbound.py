"""Feed every parser of what comes from outside with changed examples and random bytes.

An input may be accepted, refused with an error of ours, or recorded and skipped; any other exception is counted as
uncaught. The seed is fixed, so that an input that fails can be found again.
"""

from __future__ import annotations

import copy
import json
import logging
import random
import time
import traceback
from typing import Any

import structlog

from bench.lib.inbound_parsers import InboundParser, inbound_parsers
from bench.lib.report import arguments, finish, log, progress

_INPUTS = 1_050_000
_SHOWN_FAILURES = 3
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 1.5, -0.0, 1e308),
    *("", " ", "x", "nonsense", "\x00", "\n", "\ud800", "\udfff", "﷽", "🦀", "x" * 5_000, "NaN", "-1", "1e999"),
    *("2024-13-45", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+05:00", "../..", "http://[", "=" * 64, "AAAA"),
    *([], {}, [[]], [None], {"": None}, {"type": None}, ["x"] * 50, [{}], {"a": {"b": {"c": []}}}),
)
_BYTES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b'"',
    b"{",
    b"}",
    b"[" * 50,
    b"\\ud800",
    b"9" * 5_000,
    b"1e999",
    b"\n",
    b"\xed\xa0\x80",
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    found: list[tuple[Any, Any]] = []
    level = [value]
    while level:
        below: list[Any] = []
        for item in level:
            keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
            for key in keys:
                found.append((item, key))
                below.append(item[key])
        level = below
    return found


def _change_json(example: bytes, rng: random.Random) -> bytes:
    value = json.loads(example)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = _places(value)
        if not places or rng.random() < 0.01:
            value = copy.deepcopy(rng.choice(_VALUES))
            continue
        container, key = rng.choice(places)
        choice = rng.random()
        if choice < 0.6:
            container[key] = copy.deepcopy(rng.choice(_VALUES))
        elif choice < 0.75:
            del container[key]
        elif choice < 0.9:
            other, other_key = rng.choice(places)
            container[key] = copy.deepcopy(other[other_key])
        elif isinstance(container, dict):
            container[rng.choice(("", "x", "type", "content", "\ud800"))] = copy.deepcopy(container[key])
        else:
            container.append(copy.deepcopy(container[key]))
    return json.dumps(value, ensure_ascii=rng.random() < 0.9).encode(errors="surrogatepass")


def _change_bytes(example: bytes, rng: random.Random) -> bytes:
    data = bytearray(example)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data) + 1)
        choice = rng.random()
        if choice < 0.4 and at < len(data):
            data[at] = rng.randrange(256)
        elif choice < 0.6:
            del data[at : at + rng.choice((1, 4, 40))]
        elif choice < 0.8:
            data[at:at] = rng.choice(_BYTES)
        else:
            data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.choice((1, 8, 64))]
    return bytes(data)


def changed_input(parser: InboundParser, rng: random.Random) -> bytes:
    """A changed example, or now and then random bytes."""
    example = rng.choice(parser.examples)
    choice = rng.random()
    if choice < 0.03:
        return rng.randbytes(rng.choice((0, 1, 7, 100)))
    if choice < 0.75 and example[:1] in (b"{", b"["):
        try:
            return _change_json(example, rng)
        except ValueError:  # several lines of JSON
            lines = example.split(b"\n")
            number = rng.randrange(len(lines))
            lines[number] = _change_json(lines[number], rng)
            return b"\n".join(lines)
    return _change_bytes(example, rng)


def fuzz(parser: InboundParser, inputs: int, seed: int = 19) -> tuple[int, list[str]]:
    """Returns how many inputs were accepted, and the traceback of each uncaught exception."""
    rng = random.Random(f"{seed} {parser.name}")
    accepted, failures = 0, []
    for _ in range(inputs):
        data = changed_input(parser, rng)
        try:
            accepted += parser.run(data)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failures.append(f"{data[:500]!r}\n{''.join(traceback.format_exception(error)[-4:])}")
    return accepted, failures


def main() -> None:
    arguments_parser = arguments(__doc__)
    arguments_parser.add_argument("--inputs", type=int, default=_INPUTS)
    arguments_parser.add_argument("--only", help="only this parser")
    options = arguments_parser.parse_args()
    # The warnings about skipped events would take most of the time.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    total = min(options.inputs, 20_000) if options.quick else options.inputs
    with inbound_parsers() as known:
        run([parser for parser in known if options.only in (None, parser.name)], total)


def run(parsers: list[InboundParser], total: int) -> None:
    weights = sum(parser.weight for parser in parsers)
    started = time.perf_counter()
    counts: dict[str, int] = {}
    uncaught = accepted_total = 0
    for number, parser in enumerate(parsers):
        counts[parser.name] = -(-total * parser.weight // weights)
        began = time.perf_counter()
        accepted, failures = fuzz(parser, counts[parser.name])
        seconds = time.perf_counter() - began
        figures = f"{accepted:,} accepted, {len(failures)} uncaught, {seconds:.1f} s"
        log(f"{parser.name}: {counts[parser.name]:,} inputs, {figures}")
        for failure in failures[:_SHOWN_FAILURES]:
            log(failure)
        uncaught += len(failures)
        accepted_total += accepted
        progress(number + 1, len(parsers), "parsers")
    finish(
        {
            "inputs": sum(counts.values()),
            "uncaught": uncaught,
            "accepted": accepted_total,
            "seconds": round(time.perf_counter() - started, 1),
            "by_parser": counts,
        }
    )
    if uncaught:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
