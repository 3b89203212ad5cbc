"""Recall on the LoCoMo conversations: how much of the evidence for a question is among the first ten memories.

Every turn is stored as a memory, and every question is asked from its room. Compared in one run: the default, the
same with MiniLM as embedder, plain FTS5, and mem0 with each embedder (`infer=False`). The bundled ranking was trained
on the development half; for its conversations the model trained without that conversation is used (`bench/models/`,
made by `bench.train_ranking`), so that all figures are for unseen conversations.
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


def ranking_for(conversation: LocomoConversation) -> tuple[Ranking, bool]:
    """The ranking that was not trained on this conversation, and whether the bundled one was."""
    plain, embedder = FOLDS / f"plain-without-{conversation.id}.npz", FOLDS / f"embedder-without-{conversation.id}.npz"
    if plain.exists() and embedder.exists():
        return Ranking(RankingTrees.load(plain), RankingTrees.load(embedder)), True
    return Ranking.bundled(), False


def ours(
    conversations: list[LocomoConversation], embedder: Embedder | None, fuse: FusionMode = "learned"
) -> dict[str, Any]:
    found: Found = []
    took: list[float] = []
    seen = 0
    stored, storing = 0, 0.0
    for done, conversation in enumerate(conversations, start=1):
        ranking, trained_on = ranking_for(conversation)
        seen += trained_on
        with (
            tempfile.TemporaryDirectory() as folder,
            Memory(Path(folder) / "memory.db", embedder=embedder, ranking=ranking) as memory,
        ):
            memory.recall("who is there?", owner=OWNER)
            started = time.perf_counter()
            memory.add_many(conversation.memories)
            memory.vectors.embed_pending()
            storing += time.perf_counter() - started
            stored += len(conversation.memories)
            room = conversation.memories[0].room
            viewpoint: dict[str, Any] = {
                "owner": OWNER,
                "room": room,
                "present": conversation.speakers,
                "now": conversation.after,
            }
            memory.recall("who is there?", **viewpoint)
            for question in conversation.questions:
                started = time.perf_counter()
                recalled = memory.recall(question.text, k=10, fuse=fuse, **viewpoint)
                took.append((time.perf_counter() - started) * 1_000)
                found.append(_evaluate(question.category, [each.sources for each in recalled], question.evidence))
        progress(done, len(conversations), "conversations")
    return {
        **summary(found),
        "query_p50_ms": round(percentile(took, 0.5), 2),
        "query_p95_ms": round(percentile(took, 0.95), 2),
        "index_per_s": round(stored / storing),
        "talks_left_out_in_training": seen,
    }


def plain_fts(conversations: list[LocomoConversation]) -> dict[str, Any]:
    """FTS5 with porter stemming, matching any of the question's words."""
    found: Found = []
    for conversation in conversations:
        base = sqlite3.connect(":memory:")
        base.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize='porter unicode61')")
        base.executemany("INSERT INTO turns VALUES (?)", [(f"{m.speaker}: {m.text}",) for m in conversation.memories])
        for question in conversation.questions:
            match = " OR ".join(f'"{word}"' for word in words(question.text))
            rows = base.execute(
                "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT 10", (match,)
            ).fetchall()
            found.append(
                _evaluate(
                    question.category, [conversation.memories[row[0] - 1].sources for row in rows], question.evidence
                )
            )
        base.close()
    return summary(found)


def mem0(conversations: list[LocomoConversation], embedder: Embedder) -> dict[str, Any]:
    """mem0 with the same vectors, computed beforehand, so that its time does not include them."""
    found: Found = []
    took: list[float] = []
    for done, conversation in enumerate(conversations, start=1):
        names = NameMatcher(conversation.speakers)
        bare = [names.remove_from(memory.text) for memory in conversation.memories]
        question_texts = [names.remove_from(question.text) for question in conversation.questions]
        with tempfile.TemporaryDirectory() as folder:
            plan = {
                "memories": [
                    [text, OWNER, memory.sources[0]] for text, memory in zip(bare, conversation.memories, strict=True)
                ],
                "questions": [[text, OWNER] for text in question_texts],
            }
            (Path(folder) / "plan.json").write_text(json.dumps(plan))
            texts = list(dict.fromkeys([*bare, *question_texts]))
            vectors = np.asarray(embedder.embed(texts), np.float32)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
            np.save(Path(folder) / "vectors.npy", vectors)
            (Path(folder) / "texts.json").write_text(json.dumps(texts))
            answer = run_peer(mem0_python(), MEM0, folder, "10", "0")
        took.extend(answer["search_ms"])
        for question, turns in zip(conversation.questions, answer["found"], strict=True):
            found.append(_evaluate(question.category, [[turn] for turn in turns], question.evidence))
        progress(done, len(conversations), "conversations (mem0)")
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


def _evaluate(
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
    conversations = read(options.data)
    if options.quick:
        conversations = conversations[:2]
    count = sum(len(conversation.questions) for conversation in conversations)
    log(f"{len(conversations)} conversations, {sum(len(t.memories) for t in conversations)} turns, {count} questions")
    figures: dict[str, Any] = {"embedder": static_embedder().name, **ours(conversations, None, options.fuse)}
    log(f"offline default: {figures}")
    figures["graph_only"] = ours(conversations, None, "graph")
    log(f"without the learned ranking: {figures['graph_only']}")
    figures["fts5"] = plain_fts(conversations)
    log(f"plain FTS5: {figures['fts5']}")
    figures["mem0"] = _peer(lambda: mem0(conversations, static_embedder()))
    log(f"mem0, the same vectors: {figures['mem0']}")
    if not options.quick:
        figures["minilm"] = _peer(
            lambda: {"embedder": MiniLM.name, **ours(conversations, MiniLM.installed(), options.fuse)}
        )
        log(f"with MiniLM: {figures['minilm']}")
        figures["mem0_minilm"] = _peer(lambda: mem0(conversations, MiniLM.installed()))
        log(f"mem0 with MiniLM: {figures['mem0_minilm']}")
    finish(figures)


if __name__ == "__main__":
    main()
