"""Asking another character, who answers from its own memory and knows who asks. D23

It needs permission (the person must be allowed to talk with that character too) and has a budget for each day. The
other is asked once, without tools; what it says is noted as its words, and both remember that they spoke.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from coterie.base.clock import Clock, to_micros
from coterie.cast.roster import Character, Characters
from coterie.cast.workspace import Workspaces
from coterie.kernel import NewEvent, Store
from coterie.llm.messages import Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.memory import Memory
from coterie.memory.writing import NewMemory
from coterie.modes.desk.company import Audience
from coterie.modes.desk.errand import ChannelOutcome
from coterie.modes.desk.errors import NotAsked
from coterie.modes.desk.events import CharacterAsked
from coterie.modes.desk.leaks import LeakGuard
from coterie.modes.desk.marking import UNTRUSTED_TEXT_RULE, mark_untrusted

MayTalk = Callable[[str, str], bool]
"""Whether a person may talk with a character."""
_MEMORIES = 12
_ANSWER = (
    "Another character, {asker}, asks you something on behalf of {person}. Answer in a few sentences, from what you "
    "remember. Say so if you do not know; tell nothing that {person} should not hear."
)


class CharacterQuestions:
    def __init__(
        self,
        store: Store,
        roster: Characters,
        workspaces: Workspaces,
        memory: Memory,
        company: Audience,
        models: Models,
        clock: Clock,
        may_talk: MayTalk,
        most_a_day: int,
    ) -> None:
        self._store = store
        self._roster = roster
        self._workspaces = workspaces
        self._memory = memory
        self._company = company
        self._models = models
        self._clock = clock
        self._may_talk = may_talk
        self._most_a_day = most_a_day
        self._guard = LeakGuard()

    def allowed_characters(self, character: str, person: str) -> list[Character]:
        """Whom it may ask."""
        return [bot for bot in self._roster.all() if bot.id != character and self._may_talk(person, bot.id)]

    async def ask(self, errand: ChannelOutcome, name: str, question: str) -> str:
        chat = errand.chat
        asker, asked = self._roster.get(chat.character), self._allowed(errand, name)
        if self._today(chat.character) >= self._most_a_day:
            raise NotAsked(f"You have asked others {self._most_a_day} times today.", "Ask again tomorrow.")
        recalled = await asyncio.to_thread(self._company.recall_for_other, asked.id, chat, question, _MEMORIES)
        errand.note_recalled(recalled)
        told = [
            f"You are {asked.name}.",
            self._persona(asked),
            _ANSWER.format(asker=asker.name, person=chat.person),
            UNTRUSTED_TEXT_RULE,
        ]
        known = mark_untrusted(
            "\n".join(f"- {one.text_with_speaker}" for one in recalled) or "(nothing)", "your memory"
        )
        prompt = Prompt.of(f"{known}\n\n{asker.name} asks: {question}", system="\n\n".join(filter(None, told)))
        answer = await self._models.ask(Role.BRANCH, prompt, caller=Caller(chat.room, asked.id))
        said = self._guard.redact(answer.text.strip()) or "(no answer)"
        payload = CharacterAsked(branch=errand.answers, asker=asker.id, asked=asked.id, question=question, answer=said)
        # At once, not with the rest of the thought: it was said, and it counts against the budget.
        await self._store.append([NewEvent(chat.room, payload, asker.id)])
        errand.new_events += self._remembered(errand, asker, asked, question, said)
        return f"{asked.name} says: {said}"

    def _allowed(self, errand: ChannelOutcome, name: str) -> Character:
        asked = self._roster.find(name)
        if asked.id not in {bot.id for bot in self.allowed_characters(errand.chat.character, errand.chat.person)}:
            raise NotAsked(f"{asked.name} may not be asked here.", "Ask somebody the person may talk with.")
        return asked

    def _remembered(
        self, errand: ChannelOutcome, asker: Character, asked: Character, question: str, said: str
    ) -> list[NewEvent]:
        """Marked with who said it; each from its own point of view."""
        room = errand.chat.room
        there = tuple(sorted({asked.id, *self._company.witnesses(errand.chat)}))
        heard = NewMemory(
            f"{asked.name} told me: {said}",
            asker.id,
            room,
            speaker=asked.name,
            told_by=asked.id,
            witnesses=there,
            sources=(errand.answers,),
            reliability=0.8,
            private=errand.private,
        )
        asked_me = NewMemory(
            f"{asker.name} asked me: {question}",
            asked.id,
            room,
            speaker=asker.name,
            told_by=asker.id,
            witnesses=there,
            private=errand.private,
        )
        planned = self._memory.writer.plan([heard, asked_me], by_meaning=True)
        return [draft for plan in planned for draft in plan.new_events]

    def _persona(self, bot: Character) -> str:
        own = self._workspaces.texts(bot.id)
        return "\n\n".join(part for part in (own.identity or bot.identity.persona, own.soul) if part)

    def _today(self, character: str) -> int:
        since = to_micros(self._clock.now() - timedelta(days=1))
        sql = "SELECT count(*) FROM desk_asked WHERE asker = ? AND at >= ?"
        return int(self._store.query(sql, (character, since))[0][0])
