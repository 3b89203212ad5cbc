"""Recall on the LoCoMo talks: how much of the evidence for a question is among the first ten memories.

Every turn is stored as a memory, every question is asked as a person in that room would ask it. In one run: the offline
default, the same with MiniLM as embedder, plain FTS5, and mem0 with each embedder (`infer=False`). The shipped ranking
was trained on the development half; for a talk it has seen, the model trained without that talk is used instead
(`bench/models/`, made by `bench.train_ranking`), so that the figure is always for unseen talks.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.lib.locomo import OWNER, LocomoConversation, read, recall_at, reciprocal_rank
from bench.lib.minilm import MiniLM
from bench.lib.peers import MEM0, PeerMissing, mem0_python, run_peer
from bench.lib.report import arguments, finish, log, percentile, progress
from bench.train_ranking import FOLDS
from coterie.memory import Memory
from coterie.memory.index.embedders import Embedder, static_embedder
from coterie.memory.ranking import FusionMode, Ranking, RankingTrees
from coterie.memory.text import NameMatcher, words

Found = list[tuple[int, float, float, float]]
"""Per question: category, recall at 5 and at 10, reciprocal rank."""


def ranking_for(talk: LocomoConversation) -> tuple[Ranking, bool]:
    """The shipped ranking, or the one that has not seen this talk. And whether the talk was seen."""
    plain, embedder = FOLDS / f"plain-without-{talk.id}.npz", FOLDS / f"embedder-without-{talk.id}.npz"
    if plain.exists() and embedder.exists():
        return Ranking(RankingTrees.load(plain), RankingTrees.load(embedder)), True
    return Ranking.bundled(), False


def ours(talks: list[LocomoConversation], embedder: Embedder | None, fuse: FusionMode = "learned") -> dict[str, Any]:
    found: Found = []
    took: list[float] = []
    seen = 0
    stored, storing = 0, 0.0
    for done, talk in enumerate(talks, start=1):
        ranking, trained_on = ranking_for(talk)
        seen += trained_on
        with (
            tempfile.TemporaryDirectory() as folder,
            Memory(Path(folder) / "memory.db", embedder=embedder, ranking=ranking) as memory,
        ):
            memory.recall("who is there?", owner=OWNER)
            started = time.perf_counter()
            memory.add_many(talk.memories)
            memory.vectors.embed_pending()
            storing += time.perf_counter() - started
            stored += len(talk.memories)
            room = talk.memories[0].room
            ask: dict[str, Any] = {"owner": OWNER, "room": room, "present": talk.speakers, "now": talk.after}
            memory.recall("who is there?", **ask)
            for asked in talk.questions:
                started = time.perf_counter()
                recalled = memory.recall(asked.text, k=10, fuse=fuse, **ask)
                took.append((time.perf_counter() - started) * 1_000)
                found.append(_judged(asked.category, [each.sources for each in recalled], asked.evidence))
        progress(done, len(talks), "talks")
    return {
        **summary(found),
        "query_p50_ms": round(percentile(took, 0.5), 2),
        "query_p95_ms": round(percentile(took, 0.95), 2),
        "index_per_s": round(stored / storing),
        "talks_left_out_in_training": seen,
    }


def plain_fts(talks: list[LocomoConversation]) -> dict[str, Any]:
    """Full text as one gets it: porter stemming, any of the question's words."""
    found: Found = []
    for talk in talks:
        base = sqlite3.connect(":memory:")
        base.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize='porter unicode61')")
        base.executemany("INSERT INTO said VALUES (?)", [(f"{m.speaker}: {m.text}",) for m in talk.memories])
        for asked in talk.questions:
            match = " OR ".join(f'"{word}"' for word in words(asked.text))
            rows = base.execute("SELECT rowid FROM said WHERE said MATCH ? ORDER BY rank LIMIT 10", (match,)).fetchall()
            found.append(_judged(asked.category, [talk.memories[row[0] - 1].sources for row in rows], asked.evidence))
        base.close()
    return summary(found)


def mem0(talks: list[LocomoConversation], embedder: Embedder) -> dict[str, Any]:
    """mem0 with the same vectors, handed over ready-made so that it pays nothing for them."""
    found: Found = []
    took: list[float] = []
    for done, talk in enumerate(talks, start=1):
        names = NameMatcher(talk.speakers)
        bare = [names.remove_from(memory.text) for memory in talk.memories]
        asked_bare = [names.remove_from(asked.text) for asked in talk.questions]
        with tempfile.TemporaryDirectory() as folder:
            plan = {
                "memories": [
                    [text, OWNER, memory.sources[0]] for text, memory in zip(bare, talk.memories, strict=True)
                ],
                "questions": [[text, OWNER] for text in asked_bare],
            }
            (Path(folder) / "plan.json").write_text(json.dumps(plan))
            texts = list(dict.fromkeys([*bare, *asked_bare]))
            vectors = np.asarray(embedder.embed(texts), np.float32)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
            np.save(Path(folder) / "vectors.npy", vectors)
            (Path(folder) / "texts.json").write_text(json.dumps(texts))
            answer = run_peer(mem0_python(), MEM0, folder, "10", "0")
        took.extend(answer["search_ms"])
        for asked, turns in zip(talk.questions, answer["found"], strict=True):
            found.append(_judged(asked.category, [[turn] for turn in turns], asked.evidence))
        progress(done, len(talks), "talks (mem0)")
    return {**summary(found), "query_p95_ms": round(percentile(took, 0.95), 2)}


def summary(found: Found) -> dict[str, Any]:
    main = [row for row in found if 1 <= row[0] <= 4]
    kinds = sorted({row[0] for row in found})
    return {
        "recall_at_5": _mean(row[1] for row in main),
        "recall_at_10": _mean(row[2] for row in main),
        "mrr": _mean(row[3] for row in main),
        "recall_at_10_all": _mean(row[2] for row in found),
        "by_category": {str(kind): _mean(row[2] for row in found if row[0] == kind) for kind in kinds},
    }


def _judged(
    category: int, sources: Sequence[Sequence[str]], evidence: frozenset[str]
) -> tuple[int, float, float, float]:
    return (
        category,
        recall_at(sources, evidence, 5),
        recall_at(sources, evidence, 10),
        reciprocal_rank(sources, evidence),
    )


def _mean(values: Any) -> float:
    return round(float(np.mean(list(values))), 4)


def _peer(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return run()
    except PeerMissing as missing:
        return {"recall_at_10": None, "reason": str(missing)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="?", default="../shared/data/locomo_dev.json", type=Path)
    parser.add_argument("--fuse", default="learned", choices=["learned", "graph", "rrf"])
    options = parser.parse_args()
    talks = read(options.data)
    if options.quick:
        talks = talks[:2]
    count = sum(len(talk.questions) for talk in talks)
    log(f"{len(talks)} talks, {sum(len(t.memories) for t in talks)} turns, {count} questions")
    figures: dict[str, Any] = {"embedder": static_embedder().name, **ours(talks, None, options.fuse)}
    log(f"offline default: {figures}")
    figures["graph_only"] = ours(talks, None, "graph")
    log(f"without the learned ranking: {figures['graph_only']}")
    figures["fts5"] = plain_fts(talks)
    log(f"plain FTS5: {figures['fts5']}")
    figures["mem0"] = _peer(lambda: mem0(talks, static_embedder()))
    log(f"mem0, the same vectors: {figures['mem0']}")
    if not options.quick:
        figures["minilm"] = _peer(lambda: {"embedder": MiniLM.name, **ours(talks, MiniLM.installed(), options.fuse)})
        log(f"with MiniLM: {figures['minilm']}")
        figures["mem0_minilm"] = _peer(lambda: mem0(talks, MiniLM.installed()))
        log(f"mem0 with MiniLM: {figures['mem0_minilm']}")
    finish(figures)


if __name__ == "__main__":
    main()
