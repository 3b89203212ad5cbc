"""100,000 and 1,000,000 memories of 100 owners: recall latency, add rate, memory and disk.

Compared with LanceDB and mem0 (`infer=False`) with the same vectors. Their vectors are computed beforehand and that
time is added to theirs, since ours includes it. An add is complete when the memory is durable and can be found by its
words and by its vector; batches have 2,000 memories where batches are supported. The rates of LanceDB's plain append,
without an update of its text index, and of single adds are reported too. Peers have a time budget for adding; then
LanceDB is filled to the full size by plain appends before the queries.
"""

from __future__ import annotations

import gc
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.lib.peers import MEM0, PeerMissing, mem0_python, peer_python, run_peer
from bench.lib.report import arguments, finish, log, percentile, progress, scratch_folder
from coterie.memory import Memory
from coterie.memory.index.embedders import static_embedder
from coterie.memory.writer import NewMemory

OWNERS = 100
BATCH = 2_000
K = 10


class Sentences:
    """Text of words from the tokenizer's vocabulary, with a Zipf distribution."""

    def __init__(self, seed: int = 11) -> None:
        vocabulary = sorted(static_embedder().wordpieces.vocabulary.items(), key=lambda entry: entry[1])
        self._words = [
            piece[1:] for piece, _ in vocabulary if piece[0] == "▁" and piece[1:].isalpha() and len(piece) > 3
        ]
        ranks = np.arange(1, len(self._words) + 1)
        self._chance = np.cumsum(1 / ranks) / np.sum(1 / ranks)
        self._random = np.random.default_rng(seed)

    def make(self, count: int) -> list[str]:
        lengths = self._random.integers(8, 24, count)
        drawn = np.searchsorted(self._chance, self._random.random(int(lengths.sum())))
        found, at = [], 0
        for length in lengths.tolist():
            found.append(" ".join(self._words[index] for index in drawn[at : at + length].tolist()))
            at += length
        return found


def ours(folder: Path, n: int, questions: int) -> dict[str, Any]:
    sentences, rng = Sentences(), random.Random(3)
    adding = 0.0
    with Memory(folder / "memory.db") as memory:
        memory.add("warm", owner="warm-up")
        for start in range(0, n, BATCH):
            batch = [_new(text, start + at) for at, text in enumerate(sentences.make(min(BATCH, n - start)))]
            began = time.perf_counter()
            memory.add_many(batch)
            adding += time.perf_counter() - began
            progress(start + len(batch), n, "memories added")
        asked = sentences.make(questions)
        cold = []
        for owner in range(OWNERS):
            began = time.perf_counter()
            memory.recall("the first question", owner=f"owner{owner}", k=K)
            cold.append((time.perf_counter() - began) * 1_000)
        took = []
        for text in asked:
            began = time.perf_counter()
            memory.recall(" ".join(text.split()[:8]), owner=f"owner{rng.randrange(OWNERS)}", k=K)
            took.append((time.perf_counter() - began) * 1_000)
        single = []
        for at, text in enumerate(sentences.make(200)):
            began = time.perf_counter()
            memory.add_many([_new(text, n + at)])
            single.append(time.perf_counter() - began)
        rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return {
        "recall_p50_ms": round(percentile(took, 0.5), 2),
        "recall_p95_ms": round(percentile(took, 0.95), 2),
        "cold_p95_ms": round(percentile(cold, 0.95), 1),
        "add_per_s": round(n / adding),
        "add_one_by_one_per_s": round(len(single) / sum(single)),
        "rss_mb": round(rss),
        "disk_mb": round(_size(folder)),
    }


LANCEDB = """
import json, os, resource, sys, time
import lancedb, numpy, pyarrow
folder, n, batch, k, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
vectors = numpy.load(os.path.join(folder, "vectors.npy"), mmap_mode="r")
plan = json.load(open(os.path.join(folder, "plan.json")))
texts, owners = plan["texts"], plan["owners"]
def rows(start, end):
    flat = numpy.ascontiguousarray(vectors[start:end], dtype=numpy.float32).ravel()
    return pyarrow.table({
        "id": [str(i) for i in range(start, end)], "owner": owners[start:end], "text": texts[start:end],
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat), vectors.shape[1])})
import warnings; warnings.simplefilter("ignore")
table = lancedb.connect(os.path.join(folder, "lance")).create_table("m", rows(0, batch))
table.create_scalar_index("owner", index_type="BITMAP")
table.create_fts_index("text")
at, added, spent = batch, 0, 0.0
while at < n and spent < seconds:
    part = rows(at, min(n, at + batch))
    began = time.perf_counter(); table.add(part); table.optimize(); spent += time.perf_counter() - began
    at += len(part); added += len(part)
bare, bare_s = 0, 0.0
while at < n:
    part = rows(at, min(n, at + batch))
    began = time.perf_counter(); table.add(part); bare_s += time.perf_counter() - began
    at += len(part); bare += len(part)
table.optimize()
took = []
limit = time.perf_counter() + max(seconds, 5)
for vector, owner in zip(vectors[n:], plan["asked_owners"]):
    began = time.perf_counter()
    asked = table.search(numpy.asarray(vector, dtype=numpy.float32))
    asked.where(f"owner = '{owner}'", prefilter=True).limit(k).to_list()
    took.append((time.perf_counter() - began) * 1000)
    if time.perf_counter() > limit: break
one = rows(0, 1)
began = time.perf_counter()
for _ in range(50): table.add(one)
single = 50 / (time.perf_counter() - began)
size = sum(os.path.getsize(os.path.join(at_, f)) for at_, _, fs in os.walk(os.path.join(folder, "lance")) for f in fs)
print(json.dumps({"n": n, "add_per_s": round(added / spent) if added else None,
                  "bare_append_per_s": round(bare / bare_s) if bare else None, "add_one_by_one_per_s": round(single),
                  "took": took, "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
                  "disk_mb": round(size / 1e6)}))
"""


def lancedb(folder: Path, n: int, questions: int, seconds: float) -> dict[str, Any]:
    python = peer_python("lancedb", ["lancedb==0.40.0", "numpy", "pyarrow"])
    texts, owners, asked_owners, each_s = _plan(folder, n, questions)
    (folder / "plan.json").write_text(json.dumps({"texts": texts, "owners": owners, "asked_owners": asked_owners}))
    del texts, owners
    gc.collect()
    answer = run_peer(python, LANCEDB, str(folder), str(n), str(BATCH), str(K), str(seconds), timeout_s=3_000)
    took = answer.pop("took")
    answer["add_per_s"] = _with_embedding(answer["add_per_s"], each_s)
    return {**answer, "recall_p95_ms": round(percentile(took, 0.95), 2)}


def mem0(folder: Path, n: int, questions: int, seconds: float) -> dict[str, Any]:
    n = min(n, 20_000)  # it adds one by one; more would take too long
    texts, owners, asked_owners, each_s = _plan(folder, n, questions)
    sentences = [*texts, *_asked(n, questions)]
    plan = {
        "memories": [[text, owner, str(at)] for at, (text, owner) in enumerate(zip(texts, owners, strict=True))],
        "questions": [[text, owner] for text, owner in zip(sentences[n:], asked_owners, strict=True)],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "texts.json").write_text(json.dumps(sentences))
    answer = run_peer(mem0_python(), MEM0, str(folder), str(K), str(seconds), timeout_s=3_000)
    return {
        "n": answer["added"],
        "add_per_s": _with_embedding(answer["add_per_s"], each_s),
        "recall_p95_ms": round(percentile(answer["search_ms"], 0.95), 2),
        "rss_mb": round(answer["rss_mb"]),
        "disk_mb": round(answer["disk_mb"]),
    }


def _with_embedding(per_s: float | None, each_s: float) -> int | None:
    return round(1 / (1 / per_s + each_s)) if per_s else None


def _plan(folder: Path, n: int, questions: int) -> tuple[list[str], list[str], list[str], float]:
    """Texts, owners, owners of the queries, and seconds per vector; the vectors are written to a file."""
    sentences = Sentences()
    texts = sentences.make(n)
    asked = _asked(n, questions)
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (n + questions, 256))
    began = time.perf_counter()
    for start in range(0, n, 10_000):
        vectors[start : start + 10_000][: len(texts[start : start + 10_000])] = static_embedder().embed(
            texts[start : start + 10_000]
        )
    each_s = (time.perf_counter() - began) / n
    vectors[n:] = static_embedder().embed(asked)
    vectors.flush()
    rng = random.Random(3)
    owners = [f"owner{at % OWNERS}" for at in range(n)]
    return texts, owners, [f"owner{rng.randrange(OWNERS)}" for _ in asked], each_s


def _asked(n: int, questions: int) -> list[str]:
    return [" ".join(text.split()[:8]) for text in Sentences(n + 1).make(questions)]


def _new(text: str, number: int) -> NewMemory:
    owner = f"owner{number % OWNERS}"
    return NewMemory(
        text, owner, f"room:{number % OWNERS}", speaker="Ana", witnesses=(owner, "Ana"), sources=(str(number),)
    )


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def measure(n: int, questions: int, seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {"n": n}
    with scratch_folder() as name:
        figures |= ours(Path(name), n, questions)
    log(f"{n}: {figures}")
    for peer, run in (("lancedb", lancedb), ("mem0", mem0)):
        with scratch_folder() as name:
            try:
                figures[peer] = run(Path(name), n, questions, seconds)
            except PeerMissing as missing:
                figures[peer] = {"recall_p95_ms": None, "add_per_s": None, "reason": str(missing)}
        log(f"{n}, {peer}: {figures[peer]}")
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, nargs="+", help="sizes to measure instead")
    options = parser.parse_args()
    sizes = options.n or ([10_000] if options.quick else [100_000, 1_000_000])
    measured = [measure(n, 100 if options.quick else 500, 8 if options.quick else 60) for n in sizes]
    finish({**measured[-1], "sizes": measured})


if __name__ == "__main__":
    main()
