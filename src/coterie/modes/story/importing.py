"""A SillyTavern chat becomes a chat here, with its turns and swipes, and the character remembers it. S9

Replies that were swiped away are recorded and superseded, so that they can be swiped back to. No model is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.cast.cards.tavern_chat import TavernChat, TavernTurn
from coterie.cast.roster import YOU, Bot
from coterie.engine.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.kernel import Draft, Store
from coterie.memory import Memory
from coterie.memory.writing import NewMemory
from coterie.modes.story.chats import Chat
from coterie.modes.story.kickoff import Opening
from coterie.modes.story.room import superseded
from coterie.modes.story.segments import split, told
from coterie.modes.story.story import Story

_BATCH = 500


@dataclass
class _Script:
    """The events of the turns, and what is to be remembered of them."""

    room: str
    bot: Bot
    seq: int
    """The number of the last event so far."""
    drafts: list[Draft] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    memories: list[NewMemory] = field(default_factory=list)
    asked: str | None = None

    def add(self, draft: Draft) -> None:
        self.drafts.append(draft)
        self.seq += 1


async def import_tavern_chat(
    story: Story, store: Store, memory: Memory, bot: Bot, chat: TavernChat, title: str = ""
) -> Chat:
    """The whole chat in one transaction; what there is to remember follows."""
    room = f"room:{new_id()}"
    drafts = story.beginning(room, bot, Opening(title=title.strip() or f"{bot.name} (imported)"))
    script = _Script(room, bot, seq=len(drafts))
    for turn in chat.turns:
        if turn.speaker == "character":
            _reply(script, turn)
        else:
            _said(script, turn)
    drafts += script.drafts
    if script.dropped:
        drafts.append(Draft(room, superseded(script.dropped), YOU))
    await store.append(drafts)
    for batch in _batches(script.memories):
        planned = memory.writing.plan(batch, near=False, actor="import")
        if remembered := [draft for plan in planned for draft in plan.drafts]:
            await store.append(remembered)
    return story.chats.chat(room)


def _said(script: _Script, turn: TavernTurn) -> None:
    """SillyTavern's system messages are for the player only, as notes are here."""
    note = turn.speaker == "system"
    segments = (Segment(kind="ooc", text=turn.text),) if note else tuple(split(turn.text))
    if not segments:
        return
    turn_id = new_id()
    text = f"(({turn.text}))" if note else turn.text
    said = UserTurn(turn=turn_id, author=YOU, text=text, segments=segments, sent=turn.sent)
    script.add(Draft(script.room, said, YOU, turn=turn_id))
    if not note:
        script.asked = turn_id
    _remember(script, told(segments), turn.name or YOU, turn_id)


def _reply(script: _Script, turn: TavernTurn) -> None:
    texts = turn.swipes or [turn.text]
    for number, text in enumerate(texts):
        reply = new_id()
        started = AssistantTurnStarted(reply=reply, speaker=script.bot.id, answers=script.asked, sent=turn.sent)
        script.add(Draft(script.room, started, script.bot.id, turn=reply))
        script.add(Draft(script.room, AssistantTurn(reply=reply, text=text), script.bot.id, turn=reply))
        if number != turn.chosen:
            script.dropped += [script.seq - 1, script.seq]
        else:
            _remember(script, text.strip(), script.bot.name, reply)


def _remember(script: _Script, text: str, speaker: str, source: str) -> None:
    if text:
        new = NewMemory(
            text,
            owner=script.bot.id,
            room=script.room,
            speaker=speaker,
            witnesses=(script.bot.id, YOU),
            sources=(source,),
        )
        script.memories.append(new)


def _batches(memories: list[NewMemory]) -> Iterator[list[NewMemory]]:
    for start in range(0, len(memories), _BATCH):
        yield memories[start : start + _BATCH]
