"""Trains the bundled ranking, and measures it on conversations that it was not trained on.

For each conversation a model is trained on all others (`bench/models/`, used by `bench.recall` for that conversation);
then one on all of them, which is bundled. The features are the signals of recall; the model files have thresholds and
values, no text. LightGBM runs in a separate environment.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.lib.locomo import OWNER, LocomoConversation, read, recall_at
from bench.lib.minilm import MiniLM
from bench.lib.peers import peer_python, run_peer
from bench.lib.report import arguments, finish, log, progress
from coterie.memory import Memory
from coterie.memory.access import Viewpoint
from coterie.memory.index.embedders import Embedder
from coterie.memory.ranking import MAX_RANKED, FusionMode, Ranked, Ranking, RankingTrees
from coterie.memory.recall import RecallRequest
from coterie.memory.signals import Signals

BUNDLED = Path("src/coterie/memory/models")
FOLDS = Path("bench/models")

FIT = """
import json, sys
import lightgbm, numpy
data = numpy.load(sys.argv[1])
settings = dict(
    objective="lambdarank", learning_rate=0.06, num_leaves=8, max_depth=4, min_data_in_leaf=40, feature_fraction=0.6,
    bagging_fraction=0.8, bagging_freq=1, lambda_l2=5, lambdarank_truncation_level=15, verbose=-1, num_threads=2,
    deterministic=True, force_row_wise=True, seed=7,
)
train = lightgbm.Dataset(data["table"], data["hit"], group=data["sizes"], feature_name=list(map(str, data["names"])))
model = lightgbm.train(settings, train, int(sys.argv[2]))
json.dump(model.dump_model()["tree_info"], open(sys.argv[3], "w"))
print("{}")
"""
TREES = 140


class CachedEmbedder:
    """An embedder that caches its vectors on disk."""

    def __init__(self, embedder: MiniLM) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self._file = Path(".bench") / f"{embedder.name}.npz"
        self._known: dict[str, Any] = {}
        if self._file.exists():
            with np.load(self._file) as file:
                self._known = dict(zip(file["texts"].tolist(), file["vectors"], strict=True))

    def embed(self, texts: Sequence[str]) -> Any:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known.update(zip(fresh, self._embedder.embed(fresh), strict=True))
        return np.array([self._known[text] for text in texts])

    def save(self) -> None:
        np.savez(self._file, texts=np.array(list(self._known)), vectors=np.array(list(self._known.values())))


class SignalRecorder(Ranking):
    """A ranking that records its signals and orders by the graph score."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: Signals | None = None

    def rank(self, signals: Signals, fuse: FusionMode = "graph") -> Ranked:
        self.signals = signals
        return super().rank(signals, "graph")


def collect_features(conversation: LocomoConversation, embedder: Embedder | None) -> list[dict[str, Any]]:
    """For each question, the features of the candidates and which of them are evidence."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        ranking = SignalRecorder()
        with Memory(Path(folder) / "memory.db", embedder=embedder, ranking=ranking) as memory:
            memory.add_many(conversation.memories)
            memory.vectors.embed_pending()
            room = conversation.memories[0].room
            sources = {record.id: record.sources for record in memory.browse(owner=OWNER)}
            for question in conversation.questions:
                request = RecallRequest(question.text, Viewpoint.of(OWNER, room, conversation.speakers), k=10_000)
                memory._recall.recall(request, conversation.after)
                index, signals = memory._recall.index_of(OWNER), ranking.signals
                if index is None or signals is None:
                    continue
                best = np.sort(np.lexsort((signals.positions, -signals.graph))[:MAX_RANKED])
                names = tuple(signals.table)
                turns = [sources[index.ids[position]] for position in signals.positions[best]]
                rows.append(
                    {
                        "names": names,
                        "table": signals.matrix(names, best),
                        "turns": turns,
                        "hit": np.array([bool(question.evidence & set(each)) for each in turns], np.int64),
                        "question": question,
                        "graph": signals.graph[best],
                    }
                )
    return rows


def fit(rows: list[dict[str, Any]]) -> RankingTrees:
    python = peer_python("lightgbm", ["lightgbm==4.7.0", "numpy", "scipy"])

    usable = [row for row in rows if row["hit"].any()]
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data.npz", Path(folder) / "trees.json"
        np.savez(
            data,
            table=np.concatenate([row["table"] for row in usable]),
            hit=np.concatenate([row["hit"] for row in usable]),
            sizes=np.array([len(row["hit"]) for row in usable]),
            names=np.array(usable[0]["names"]),
        )
        run_peer(python, FIT, str(data), str(TREES), str(out))
        return flatten(json.loads(out.read_text()), usable[0]["names"])


def flatten(trees: list[dict[str, Any]], names: tuple[str, ...]) -> RankingTrees:
    """LightGBM's nested trees as arrays: the children of a node are adjacent, and a leaf leads to itself."""
    nodes: list[dict[str, Any]] = [tree["tree_structure"] for tree in trees]
    depths = [0] * len(nodes)
    left: list[int] = []
    for at, node in enumerate(nodes):  # grows while it is read
        if "leaf_value" in node:
            left.append(at)
        else:
            left.append(len(nodes))
            nodes.extend((node["left_child"], node["right_child"]))
            depths.extend((depths[at] + 1, depths[at] + 1))
    leaf = ["leaf_value" in node for node in nodes]
    return RankingTrees(
        features=names,
        roots=np.arange(len(trees)),
        feature=np.array([0 if end else node["split_feature"] for node, end in zip(nodes, leaf, strict=True)]),
        # Features are rounded to five digits; a threshold halfway between two values avoids rounding errors.
        threshold=np.array(
            [np.inf if end else round(node["threshold"], 5) + 0.000005 for node, end in zip(nodes, leaf, strict=True)]
        ),
        left=np.array(left),
        value=np.array(
            [node["leaf_value" if end else "internal_value"] for node, end in zip(nodes, leaf, strict=True)]
        ),
        depth=max(depths),
    )


def evaluate(rows: list[dict[str, Any]], score: Callable[[dict[str, Any]], Any]) -> float:
    recalls = []
    for row in rows:
        order = np.argsort(-score(row), kind="stable")
        recalls.append(recall_at([row["turns"][index] for index in order[:10]], row["question"].evidence, 10))
    return round(float(np.mean(recalls)), 4)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", nargs="?", default="../shared/data/locomo_dev.json", type=Path)
    options = parser.parse_args()
    conversations = read(options.data)
    BUNDLED.mkdir(parents=True, exist_ok=True)
    FOLDS.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    minilm = CachedEmbedder(MiniLM.installed())
    for name, embedder in (("plain", None), ("embedder", minilm)):
        features: dict[str, list[dict[str, Any]]] = {}
        for done, conversation in enumerate(conversations, start=1):
            features[conversation.id] = collect_features(conversation, embedder)
            minilm.save()
            progress(done, len(conversations), f"conversations ({name})")
        left_out: list[float] = []
        count = 0
        for conversation in conversations:
            others = [row for other, rows in features.items() if other != conversation.id for row in rows]
            trees = fit(others)
            trees.save(FOLDS / f"{name}-without-{conversation.id}.npz")
            result = evaluate(features[conversation.id], lambda row, trees=trees: trees.scores(row["table"]))  # type: ignore[misc]
            graph = evaluate(features[conversation.id], lambda row: row["graph"])
            log(f"{name} {conversation.id}: graph {graph}   learned without it {result}")
            left_out.append(result * len(conversation.questions))
            count += len(conversation.questions)
        everything = [row for rows in features.values() for row in rows]
        fit(everything).save(BUNDLED / f"{name}.npz")
        figures[name] = {
            "graph": evaluate(everything, lambda row: row["graph"]),
            "left_one_out": round(sum(left_out) / count, 4),
        }
        log(f"{name}: {figures[name]}")
    finish(figures)


if __name__ == "__main__":
    main()
