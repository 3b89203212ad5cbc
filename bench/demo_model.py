"""The bundled model in conversations of newcomers: the share of replies that fail, by kind, prompt form and weights.

Each conversation of bench/data/newcomer_conversations.toml is held through the story service with the model in its own
process, as in the product; later messages see the model's own earlier replies. Compared are the chat template with
instructions (`chat`), the script form with one candidate used as it is (`script`), and the script form with a choice
among several candidates (`selected`). The judges in bench/lib/reply_judges.py share no code with that choice. A line by
the character's author, used if no candidate passes, is judged as any other line, except that it may be in the card; the
share of such lines is a figure of its own.
"""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.lib.reply_judges import KINDS, Situation, judge
from bench.lib.report import arguments, finish, log, median, percentile, progress, scratch_folder
from bench.lib.story_fixture import bench_projections
from coterie.base.clock import SystemClock
from coterie.characters.service import Characters, OwnerProfile
from coterie.characters.starter_characters import opening_for, starter_character
from coterie.eventstore import Store
from coterie.llm.embedded.gguf import find_weights
from coterie.llm.router import Models
from coterie.llm.settings import EMBEDDED, EmbeddedSettings, ModelDetails, ModelsSettings
from coterie.llm.usage import ModelCalled
from coterie.memory import Memory, text_similarity
from coterie.modes.story.opening import Opening
from coterie.modes.story.service import StoryService
from coterie.modes.story.settings import StorySettings

Form = Literal["chat", "script", "selected"]
FORMS: tuple[Form, ...] = ("chat", "script", "selected")
_CONVERSATIONS = Path(__file__).parent / "data" / "newcomer_conversations.toml"
_CANDIDATES = 4


@dataclass(frozen=True)
class Judged:
    """A reply with its verdict."""

    character: str
    person: str
    kind: str
    message: str
    reply: str
    failures: tuple[str, ...]
    seconds: float
    selection: str


def conversations(split: str) -> list[dict[str, Any]]:
    found = tomllib.loads(_CONVERSATIONS.read_text(encoding="utf-8"))["conversation"]
    return [one for one in found if one["split"] == split]


def settings_for(form: Form, weights: Path) -> ModelsSettings:
    details = ModelDetails(
        prompt_form="chat" if form == "chat" else "script", max_story_words=80 if form == "chat" else None
    )
    embedded = EmbeddedSettings(model=str(weights), candidates=_CANDIDATES if form == "selected" else 1)
    return ModelsSettings(
        roles={"narrative": ("embedded/demo",), "classifier": ("embedded/demo",)},
        details={"embedded/demo": details},
        embedded=embedded,
    )


async def hold(folder: Path, form: Form, weights: Path, chosen: list[dict[str, Any]]) -> list[Judged]:
    """All conversations with one model, one after the other."""
    judged: list[Judged] = []
    total = sum(len(one["messages"]) for one in chosen)
    models = Models(settings_for(form, weights), similarity=text_similarity)
    for number, conversation in enumerate(chosen):
        path = folder / f"{form}-{weights.stem}-{number}.db"
        async for one in _converse(path, models, conversation, form):
            judged.append(one)
            progress(len(judged), total, f"{weights.stem} {form}")
    await models.close()
    return judged


async def _converse(path: Path, models: Models, conversation: dict[str, Any], form: Form) -> Any:
    clock = SystemClock()
    store = Store.open(path, projections=bench_projections(), clock=clock)
    # The provider is shared between conversations, so that the process is started once.
    own = Models(models.settings, clock=clock, store=store, providers={"embedded": models.provider(EMBEDDED)})
    characters = Characters(store)
    story = StoryService(store, characters, Memory(store, clock=clock), own, StorySettings(), clock)
    await characters.save_owner(OwnerProfile(name=conversation["person"]))
    character = await characters.save(starter_character(conversation["character"]))
    prepared = opening_for(character.identity.kickoff) or {}
    room = (
        await story.begin(character.id, Opening.model_validate({**prepared, "greeting": character.identity.kickoff}))
    ).room
    identity = character.identity
    authored = (identity.persona, identity.backstory, identity.initial_relationship, *identity.voice_samples)
    earlier = [(identity.name, identity.kickoff)]
    for message in conversation["messages"]:
        began = time.perf_counter()
        await story.send_message(room, message["text"])
        await story.replies.wait(room)
        seconds = time.perf_counter() - began
        reply = story.timeline.latest(room, 1)[0].text
        calls = [event.payload for event in await store.read("instance", kinds=[ModelCalled.kind], newest_first=True)]
        selection = calls[0].selection if calls and isinstance(calls[0], ModelCalled) else ""
        by_author = "line by the author" in selection or "neutral line" in selection
        situation = Situation(
            identity.name,
            conversation["person"],
            message["kind"],
            message["text"],
            list(earlier),
            () if by_author else (*authored, identity.kickoff),
        )
        verdict = judge(reply, situation)
        if by_author:  # without the card's texts there is nothing that it could be on the topic of
            verdict = tuple(kind for kind in verdict if kind != "off_topic")
        earlier += [(conversation["person"], message["text"]), (identity.name, reply)]
        yield Judged(
            conversation["character"],
            conversation["person"],
            message["kind"],
            message["text"],
            reply,
            verdict,
            round(seconds, 2),
            selection,
        )
    store.close()


def figures(judged: list[Judged]) -> dict[str, Any]:
    count = Counter(kind for one in judged for kind in one.failures)
    share = {kind: round(count[kind] / len(judged), 3) for kind in KINDS}
    seconds = [one.seconds for one in judged]
    return {
        "replies": len(judged),
        "failed": round(sum(bool(one.failures) for one in judged) / len(judged), 3),
        **share,
        "author_lines": round(sum("line by the author" in one.selection for one in judged) / len(judged), 3),
        "fixed_replies": round(sum("fixed" in one.selection for one in judged) / len(judged), 3),
        "reply_p50_s": round(median(seconds), 2),
        "reply_p95_s": round(percentile(seconds, 0.95), 2),
    }


def _samples(judged: list[Judged]) -> Iterator[str]:
    for one in judged:
        marks = f"  [{', '.join(one.failures)}]" if one.failures else ""
        yield f"{one.person}: {one.message}\n  {one.character}: {one.reply}{marks}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--weights", action="append", default=[], help="a GGUF file; by default the bundled ones")
    parser.add_argument("--form", action="append", choices=FORMS, default=[], help="only this form; may be repeated")
    parser.add_argument("--split", choices=("evaluation", "tuning"), default="evaluation")
    parser.add_argument("--replies", help="a file to write every reply and its verdict to, as JSON lines")
    options = parser.parse_args()
    chosen = conversations("tuning" if options.quick else options.split)
    forms: list[Form] = options.form or list(FORMS)
    results: dict[str, dict[str, Any]] = {}
    for weights in [Path(file) for file in options.weights] or [find_weights(None)]:
        for form in forms[-1:] if options.quick else forms:
            with scratch_folder() as folder:
                judged = asyncio.run(hold(Path(folder), form, weights, chosen))
            results.setdefault(weights.stem, {})[form] = figures(judged)
            log("\n".join(_samples(judged)))
            log(f"{weights.stem} {form}: {json.dumps(results[weights.stem][form])}")
            if options.replies:
                with Path(options.replies).open("a", encoding="utf-8") as file:
                    file.writelines(
                        json.dumps({"weights": weights.stem, "form": form, **asdict(one)}) + "\n" for one in judged
                    )
    finish({"messages": sum(len(one["messages"]) for one in chosen), "weights": results})


if __name__ == "__main__":
    main()
