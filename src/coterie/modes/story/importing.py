"""A SillyTavern chat becomes a chat here, with its turns and swipes, and the character remembers it. S9

Replies that were swiped away are recorded and superseded, so that they can be swiped back to. No model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.cast.cards.tavern_chat import TavernChat, TavernTurn
from coterie.cast.roster import OWNER, Character
from coterie.engine.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.kernel import NewEvent, Store
from coterie.memory import Memory
from coterie.memory.writing import NewMemory
from coterie.modes.story.chats import Chat
from coterie.modes.story.kickoff import Opening
from coterie.modes.story.room import supersede
from coterie.modes.story.segments import parse_segments, visible_text
from coterie.modes.story.story import StoryService

_BATCH = 500


@dataclass
class _ImportedChat:
    """The events of the turns, and what is to be remembered of them."""

    room: str
    bot: Character
    seq: int
    """The number of the last event so far."""
    drafts: list[NewEvent] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    memories: list[NewMemory] = field(default_factory=list)
    asked: str | None = None

    def add(self, draft: NewEvent) -> None:
        self.drafts.append(draft)
        self.seq += 1


async def import_tavern_chat(
    story: StoryService, store: Store, memory: Memory, character: Character, chat: TavernChat, title: str = ""
) -> Chat:
    """The whole chat in one transaction; what there is to remember follows."""
    room = f"room:{new_id()}"
    drafts = story.opening_events(room, character, Opening(title=title.strip() or f"{character.name} (imported)"))
    script = _ImportedChat(room, character, seq=len(drafts))
    for turn in chat.turns:
        if turn.speaker == "character":
            _add_reply(script, turn)
        else:
            _add_message(script, turn)
    drafts += script.drafts
    if script.dropped:
        drafts.append(NewEvent(room, supersede(script.dropped), OWNER))
    await store.append(drafts)
    for batch in _batches(script.memories):
        planned = memory.writer.plan(batch, by_meaning=False, actor="import")
        if remembered := [draft for plan in planned for draft in plan.new_events]:
            await store.append(remembered)
    return story.chats.chat(room)


def _add_message(script: _ImportedChat, turn: TavernTurn) -> None:
    """SillyTavern's system messages are for the player only, as notes are here."""
    note = turn.speaker == "system"
    segments = (Segment(kind="ooc", text=turn.text),) if note else tuple(parse_segments(turn.text))
    if not segments:
        return
    turn_id = new_id()
    text = f"(({turn.text}))" if note else turn.text
    said = UserTurn(turn=turn_id, author=OWNER, text=text, segments=segments, sent=turn.sent)
    script.add(NewEvent(script.room, said, OWNER, turn=turn_id))
    if not note:
        script.asked = turn_id
    _add_memory(script, visible_text(segments), turn.name or OWNER, turn_id)


def _add_reply(script: _ImportedChat, turn: TavernTurn) -> None:
    texts = turn.swipes or [turn.text]
    for number, text in enumerate(texts):
        reply = new_id()
        started = AssistantTurnStarted(reply=reply, speaker=script.bot.id, answers=script.asked, sent=turn.sent)
        script.add(NewEvent(script.room, started, script.bot.id, turn=reply))
        script.add(NewEvent(script.room, AssistantTurn(reply=reply, text=text), script.bot.id, turn=reply))
        if number != turn.chosen:
            script.dropped += [script.seq - 1, script.seq]
        else:
            _add_memory(script, text.strip(), script.bot.name, reply)


def _add_memory(script: _ImportedChat, text: str, speaker: str, source: str) -> None:
    if text:
        new = NewMemory(
            text,
            owner=script.bot.id,
            room=script.room,
            speaker=speaker,
            witnesses=(script.bot.id, OWNER),
            sources=(source,),
        )
        script.memories.append(new)


def _batches(memories: list[NewMemory]) -> Iterator[list[NewMemory]]:
    for start in range(0, len(memories), _BATCH):
        yield memories[start : start + _BATCH]
