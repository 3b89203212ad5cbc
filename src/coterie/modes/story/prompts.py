"""What was sent to models, kept so that it can be looked at: the prompt inspector's view. S13"""

from __future__ import annotations

from dataclasses import dataclass

from coterie.engine.errors import NoSuchTurn
from coterie.kernel import Event, Projection, Rows, Store, on
from coterie.modes.story.events import PromptSent, SentPromptPart


@dataclass(frozen=True)
class InspectedPrompt:
    sent: PromptSent
    parts: list[tuple[SentPromptPart, str]]
    """Each part with its text, in the order it was sent."""


class PromptProjection(Projection):
    name = "story_prompts"
    line = "room"
    schema = """
        CREATE TABLE prompt(room TEXT, reply TEXT, sent TEXT NOT NULL, PRIMARY KEY(room, reply)) WITHOUT ROWID;
        CREATE TABLE prompt_text(room TEXT, sha TEXT, text TEXT NOT NULL, PRIMARY KEY(room, sha)) WITHOUT ROWID;
    """

    @on(PromptSent)
    def sent(self, rows: Rows, event: Event[PromptSent]) -> None:
        it = event.payload
        told = it.model_copy(update={"texts": {}}).model_dump_json()
        rows.run("INSERT OR REPLACE INTO prompt VALUES (?, ?, ?)", (event.stream, it.reply, told))
        rows.many(
            "INSERT OR IGNORE INTO prompt_text VALUES (?, ?, ?)",
            [(event.stream, sha, text) for sha, text in it.texts.items()],
        )


class PromptQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def inspect(self, room: str, reply: str) -> InspectedPrompt:
        rows = self._store.query("SELECT sent FROM prompt WHERE room = ? AND reply = ?", (room, reply))
        if not rows:
            raise NoSuchTurn("Nothing was sent to a model for this turn.", "Choose a turn that a model wrote.")
        sent = PromptSent.model_validate_json(rows[0][0])
        texts: dict[str, str] = dict(self._store.query("SELECT sha, text FROM prompt_text WHERE room = ?", (room,)))
        return InspectedPrompt(sent, [(part, texts.get(part.sha, "")) for part in sent.parts])
