"""Random commands on a story, and an independent model of the result: who said what, and who witnessed it.

An expected chat is a list of turns. A rewind cuts the list, a fork copies it, choosing an alternative changes its end.
What the story shows, and what its prompts contain, is compared with this model.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from coterie.base.errors import BadPoint
from coterie.characters.service import OWNER, Character, OwnerProfile
from coterie.eventstore import NewEvent
from coterie.llm.messages import CompletionRequest
from coterie.modes.story.events import ManualEdit
from coterie.modes.story.settings import StorySettings
from tests.modes.story.conftest import StoryHarness
from tests.modes.story.echo_model import EchoModel, codes, pairs_of, shape_of, speaker_of, words
from tests.modes.story.expected_chats import ExpectedChat, ExpectedTurn

NAMES = ("Mara", "Theo", "Ida", "Ugo")
TOPICS = ("harbour", "boat", "lamp", "letter", "cello", "garden")
SMALL = StorySettings(narrative_budget_hard=1_400, narrative_budget_soft=700, retrieval_k=10, reader_from_words=14)
"""A small budget, so that summaries replace dialogue, and much recall, so that leaks are likely."""

COMMANDS = {
    "say": 40,
    "whisper": 14,
    "regenerate": 12,
    "edit": 5,
    "choose": 6,
    "rewind": 7,
    "undo": 6,
    "fork": 5,
    "invite": 9,
    "send_away": 5,
    "close": 4,
    "correct": 3,
    "say_silently": 2,
    "let_another_reply": 3,
    "continue": 2,
    "edit_turn": 3,
    "delete": 3,
    "restore": 2,
    "hide": 3,
    "show": 2,
    "delete_chat": 3,
    "reset": 2,
    "unreset": 2,
    "begin": 2,
}


class RandomCommands:
    def __init__(self, harness: StoryHarness, model: EchoModel, chance: random.Random) -> None:
        self.harness = harness
        self.model = model
        self.chance = chance
        self.characters: dict[str, str] = {}
        """Name → id."""
        self.chats: dict[str, ExpectedChat] = {}
        self.reset_steps: dict[str, int] = {}
        self.before_reset: tuple[dict[str, ExpectedChat], dict[str, int], str] | None = None
        self.number = 0
        self.steps = 0
        self.done: Counter[str] = Counter()
        self.planted: dict[str, set[str]] = {}
        """Code word → what happened to the turn that contains it."""
        self.follows: dict[str, str] = {}
        """Reply id → the reply before it, if several characters reply to one message."""
        self.leaks: list[str] = []
        self.allowed = 0
        """How often a prompt contained a code word that it may contain."""

    async def prepare(self) -> None:
        await self.harness.characters.save_owner(OwnerProfile(name="Ana"))
        for name in NAMES:
            self.characters[name] = (await self.harness.create_character(name, persona=f"{name} keeps a light.")).id
        for name in NAMES[:3]:
            await self._begin(self.characters[name])

    async def step(self, command: str | None = None) -> str:
        """Run a random command and return its name."""
        self.steps += 1
        self.harness.clock.advance(7)
        command = command or self.chance.choices(list(COMMANDS), list(COMMANDS.values()))[0]
        if not self.chats:
            command = "unreset" if self.before_reset is not None else "begin"
        chat = self.chance.choice(list(self.chats.values())) if self.chats else None
        if await getattr(self, f"_{command}")(*([chat] if command not in ("begin", "unreset") else [])):
            self.done[command] += 1
            if command not in ("say", "whisper", "reset"):
                self.before_reset = None
        if self.chance.random() < 0.7:  # sometimes jobs are still pending when the next command begins
            await self.harness.run_jobs()
        self.check_prompts()
        return command

    # --- commands: each returns whether it did something --------------------------------------------------

    async def _begin(self, host: str | None = None) -> bool:
        if len(self.chats) >= 7:
            return False
        host = host or self.chance.choice(list(self.characters.values()))
        room = await self.harness.start_chat(self._character(host))
        self.chats[room] = ExpectedChat(room, room, host)
        return True

    async def _say(self, chat: ExpectedChat, to: tuple[str, ...] = ()) -> bool:
        text, reply = self._text(), self._reply()
        begun = await self.harness.story.send_message(chat.room, text, to=to)
        await self.harness.story.replies.wait(chat.room)
        message = self._expected_turn(chat, begun.turn, text, OWNER, to)
        given = self._expected_turn(chat, begun.reply, reply, begun.speaker, to)
        chat.turns += [message, replace(given, answers=message.id)]
        chat.swipes[begun.turn] = {begun.reply: (message, chat.turns[-1])}
        chat.before = None
        if to:
            self._mark(chat.turns[-2:], "whispered")
        self.check_prompts()
        return True

    async def _whisper(self, chat: ExpectedChat) -> bool:
        to = self.chance.sample(sorted(chat.characters), self.chance.randint(1, len(chat.characters)))
        return await self._say(chat, tuple(to))

    async def _regenerate(self, chat: ExpectedChat, text: str | None = None) -> bool:
        if (exchange := chat.last_exchange) is None:
            return False
        message, old = exchange
        whisper = message.private
        reply = self._reply()
        begun = await self.harness.story.regenerate(chat.room, text=text)
        await self.harness.story.replies.wait(chat.room)
        if text is not None:
            self._mark([message], "swiped")
            message = replace(message, text=text)
            chat.turns = [message if one.id == message.id else one for one in chat.turns]
        # The reply to a whisper is for its listeners who are still present.
        heard = frozenset(message.witnesses & chat.characters) if whisper else frozenset(chat.characters)
        given = ExpectedTurn(
            begun.reply, reply, begun.speaker, heard | {begun.speaker}, frozenset(chat.guests), whisper, self.steps
        )
        if text is not None:
            chat.turns = [one for one in chat.turns if one.answers != message.id or one is old]
            if old is not None:
                self.follows.pop(old.id, None)
        self._replace_reply(chat, message, old, given)
        chat.before = None
        self.check_prompts()
        return True

    async def _edit(self, chat: ExpectedChat) -> bool:
        return await self._regenerate(chat, self._text())

    async def _choose(self, chat: ExpectedChat) -> bool:
        if (exchange := chat.last_exchange) is None or exchange[1] is None:
            return False
        message, current = exchange[0], exchange[1]
        assert current is not None
        deleted = {one.id for one in chat.deleted}
        swipes = chat.swipes.get(self._place(chat, current), {})
        others = [reply for reply in swipes if reply != current.id and reply not in deleted]
        if not others:
            return False
        chosen = self.chance.choice(others)
        await self.harness.story.choose(chat.room, chosen)
        self._mark([current], "swiped")
        message, chat.turns[-1] = swipes[chosen]
        chat.turns = [message if one.id == message.id else one for one in chat.turns]
        return True

    async def _say_silently(self, chat: ExpectedChat) -> bool:
        text = self._text()
        begun = await self.harness.story.send_message(chat.room, text, reply=False)
        assert begun.reply == ""
        chat.turns.append(self._expected_turn(chat, begun.turn, text, OWNER, ()))
        chat.before = None
        return True

    async def _let_another_reply(self, chat: ExpectedChat) -> bool:
        if (exchange := chat.last_exchange) is None or exchange[1] is None:
            return False
        message, last = exchange[0], exchange[1]
        assert last is not None
        heard = frozenset(message.witnesses & chat.characters) if message.private else frozenset(chat.characters)
        if not heard:
            return False
        speaker, text = self.chance.choice(sorted(heard)), self._reply()
        begun = await self.harness.story.add_reply(chat.room, speaker)
        await self.harness.story.replies.wait(chat.room)
        given = ExpectedTurn(
            begun.reply, text, speaker, heard, frozenset(chat.guests), message.private, self.steps, message.id
        )
        chat.turns.append(given)
        chat.swipes[last.id] = {begun.reply: (message, given)}
        self.follows[begun.reply] = last.id
        chat.before = None
        return True

    async def _continue(self, chat: ExpectedChat) -> bool:
        if (exchange := chat.last_exchange) is None or (old := exchange[1]) is None:
            return False
        if old.speaker not in chat.characters:
            return False
        more = self._reply()
        begun = await self.harness.story.continue_reply(chat.room)
        await self.harness.story.replies.wait(chat.room)
        message = exchange[0]
        heard = frozenset(message.witnesses & chat.characters) if message.private else frozenset(chat.characters)
        given = replace(
            old,
            id=begun.reply,
            text=f"{old.text} {more}",
            witnesses=heard | {old.speaker},
            guests=frozenset(chat.guests),
            step=self.steps,
            hidden=False,
        )
        self._replace_reply(chat, message, old, given)
        chat.before = None
        return True

    async def _edit_turn(self, chat: ExpectedChat) -> bool:
        if not chat.turns:
            return False
        old = self.chance.choice(chat.turns[-8:])
        text = self._text() if old.speaker == OWNER else f"Corrected to {self._code('q')}."
        turn_id = await self.harness.story.edit_turn(chat.room, old.id, text)
        self._mark([old], "edited")
        if turn_id == old.id:
            chat.replace_turn(replace(old, text=text))
        else:
            exchange = chat.last_exchange
            changed = replace(old, id=turn_id, text=text, hidden=False)
            if exchange is not None:
                self._replace_reply(chat, exchange[0], old, changed)
            else:
                chat.swipes.setdefault(self._place(chat, old), {})[turn_id] = (old, changed)
                self.follows[turn_id] = self.follows.get(old.id, "")
                chat.turns[-1] = changed
        chat.before = None
        return True

    async def _delete(self, chat: ExpectedChat) -> bool:
        if not chat.turns:
            return False
        at = self.chance.randrange(max(0, len(chat.turns) - 8), len(chat.turns))
        gone = chat.turns[at : at + self.chance.choice([1, 1, 2, 3])]
        assert await self.harness.story.delete_turns(chat.room, [one.id for one in gone]) == [one.id for one in gone]
        self._mark(gone, "deleted")
        chat.deleted += gone
        chat.turns = [one for one in chat.turns if one not in gone]
        chat.before = None
        return True

    async def _restore(self, chat: ExpectedChat) -> bool:
        if not chat.deleted:
            return False
        back = self.chance.sample(chat.deleted, self.chance.randint(1, min(3, len(chat.deleted))))
        assert set(await self.harness.story.restore_turns(chat.room, [one.id for one in back])) == {o.id for o in back}
        chat.deleted = [one for one in chat.deleted if one not in back]
        chat.turns = sorted([*chat.turns, *back], key=lambda one: one.id)
        chat.before = None
        return True

    async def _hide(self, chat: ExpectedChat) -> bool:
        shown = [one for one in chat.turns[-8:] if not one.hidden]
        if not shown:
            return False
        one = self.chance.choice(shown)
        assert await self.harness.story.hide_turns(chat.room, [one.id]) == [one.id]
        self._mark([one], "hidden")
        chat.replace_turn(replace(one, hidden=True))
        chat.before = None
        return True

    async def _show(self, chat: ExpectedChat) -> bool:
        hidden = [one for one in chat.turns if one.hidden]
        if not hidden:
            return False
        one = self.chance.choice(hidden)
        assert await self.harness.story.hide_turns(chat.room, [one.id], hidden=False) == [one.id]
        chat.replace_turn(replace(one, hidden=False))
        chat.before = None
        return True

    def _place(self, chat: ExpectedChat, reply: ExpectedTurn) -> str:
        """What the alternatives of a reply have in common: the reply that they follow, else the message."""
        return self.follows.get(reply.id) or reply.answers

    def _replace_reply(
        self, chat: ExpectedChat, message: ExpectedTurn, old: ExpectedTurn | None, given: ExpectedTurn
    ) -> None:
        """A reply takes the place of another, or is the first one to its message."""
        given = replace(given, answers=message.id)
        if old is not None:
            self._mark([old], "swiped")
            chat.turns = chat.turns[:-1]
            self.follows[given.id] = self.follows.get(old.id, "")
        chat.turns.append(given)
        chat.swipes.setdefault(self._place(chat, given), {})[given.id] = (message, given)

    async def _rewind(self, chat: ExpectedChat) -> bool:
        if len(chat.turns) < 2:
            return False
        at = self.chance.randrange(max(0, len(chat.turns) - 8), len(chat.turns))
        await self.harness.story.rewind(chat.room, chat.turns[at].id)
        chat.before = (list(chat.turns), set(chat.guests), list(chat.deleted))
        self._mark(chat.turns[at + 1 :], "rewound")
        chat.guests = chat.guests_after(chat.turns[at])
        del chat.turns[at + 1 :]
        chat.deleted = [one for one in chat.deleted if one.id < chat.turns[at].id]
        return True

    async def _undo(self, chat: ExpectedChat) -> bool:
        if chat.before is None:
            try:
                await self.harness.story.undo_rewind(chat.room)
            except BadPoint:
                return True
            raise AssertionError("An undo succeeded with nothing to undo.")
        await self.harness.story.undo_rewind(chat.room)
        chat.turns, chat.guests, chat.deleted = chat.before
        chat.before = None
        return True

    async def _fork(self, chat: ExpectedChat) -> bool:
        if len(chat.turns) < 2 or len(self.chats) >= 7:
            return False
        at = self.chance.randrange(max(0, len(chat.turns) - 6), len(chat.turns))
        fork = await self.harness.story.fork(chat.room, chat.turns[at].id)
        copy = chat.copy()
        copy.room, copy.turns, copy.before = fork.room, chat.turns[: at + 1], None
        copy.guests = chat.guests_after(chat.turns[at])
        copy.deleted = [one for one in chat.deleted if one.id < chat.turns[at].id]
        copy.inherited = chat.inherited.union(*(one.codes for one in (*copy.turns, *copy.deleted)))
        last = copy.turns[-1].id
        copy.swipes = {
            place: {reply: both for reply, both in replies.items() if reply <= last or place < last}
            for place, replies in copy.swipes.items()
        }
        if copy.turns[-1].speaker == OWNER:
            copy.swipes[last] = {}  # replies that came later are unknown here
        self._mark(chat.turns[at + 1 :], "forked")
        self.chats[fork.room] = copy
        return True

    async def _invite(self, chat: ExpectedChat) -> bool:
        absent = sorted(set(self.characters.values()) - chat.characters)
        if not absent:
            return False
        guest = self.chance.choice(absent)
        await self.harness.story.invite(chat.room, guest)
        self._mark([one for one in chat.turns if guest not in one.witnesses], "absent")
        chat.guests.add(guest)
        chat.before = None
        return True

    async def _send_away(self, chat: ExpectedChat) -> bool:
        if not chat.guests:
            return False
        guest = self.chance.choice(sorted(chat.guests))
        await self.harness.story.remove_guest(chat.room, guest)
        chat.guests.discard(guest)
        chat.before = None
        return True

    async def _close(self, chat: ExpectedChat) -> bool:
        await self.harness.story.close_scene(chat.room)
        # Closing a scene without a turn prevents the undo of a rewind.
        if not chat.turns:
            chat.before = None
        return True

    async def _correct(self, chat: ExpectedChat) -> bool:
        """A manual edit of a relationship."""
        world = self.harness.story.chats.chat(chat.room).world
        character = self.chance.choice(sorted(chat.characters))
        prior = self.harness.story.relationships.get(world, character, OWNER)
        what, value = f"edge.{world}.{character}.you.affinity", self.chance.randint(0, 100)
        edit = ManualEdit(what=what, value=value, prior=prior.affinity)
        await self.harness.store.append([NewEvent(chat.room, edit, OWNER)])
        chat.before = None
        return True

    async def _delete_chat(self, chat: ExpectedChat) -> bool:
        """Delete a chat and restore it: everything is as before, and nothing can be undone."""
        chats = self.harness.story.chat_list
        memories = {owner: self.harness.memories_of(owner) for owner in self.characters.values()}
        await chats.delete(chat.room)
        assert not self.harness.story.chats.exists(chat.room)
        assert self.harness.store.query("SELECT count(*) FROM memory WHERE stream = ?", (chat.room,)) == [(0,)]
        self.harness.verify()
        await chats.restore(chat.room)
        assert memories == {owner: self.harness.memories_of(owner) for owner in self.characters.values()}
        chat.before = None
        return True

    async def _reset(self, chat: ExpectedChat) -> bool:
        character = self.chance.choice(sorted(chat.characters))
        self.before_reset = ({room: one.copy() for room, one in self.chats.items()}, dict(self.reset_steps), character)
        await self.harness.story.reset(character, self._character(character).name)
        for room, one in list(self.chats.items()):
            if one.host == character:
                del self.chats[room]
                self._mark(one.turns, "reset")
            elif character in one.guests:
                one.guests.discard(character)
                one.before = None
        self.reset_steps[character] = self.steps
        return True

    async def _unreset(self) -> bool:
        """Undo a reset, if nothing happened to the chats since."""
        if self.before_reset is None:
            return False
        before, reset_steps, character = self.before_reset
        hosted = [chat for chat in before.values() if chat.host == character]
        if not hosted:
            return False
        await self.harness.story.undo_rewind(self.chance.choice(hosted).room)
        for chat in hosted:
            self.chats[chat.room] = chat
            chat.before = None
        for room, chat in before.items():
            if chat.host != character and room in self.chats and character in chat.guests:
                self.chats[room].guests.add(character)
                self.chats[room].before = None
        self.reset_steps = reset_steps
        self.before_reset = None
        return True

    # --- texts and expected turns ------------------------------------------------------------------------

    def _text(self) -> str:
        note = self._code("n")
        length = self.chance.choice([0, 0, 0, 20])
        more = " and then there is much more to tell of it" * (length // 10)
        return f"The {self.chance.choice(TOPICS)} has the word {self._code('q')}{more} (({note}))"

    def _reply(self) -> str:
        said = f"About the {self.chance.choice(TOPICS)} I say {self._code('q')}."
        self.model.next_reply = said + " We wait and listen." * self.chance.choice([0, 0, 4])
        return self.model.next_reply

    def _code(self, kind: str) -> str:
        self.number += 1
        code = f"z{kind}{self.number:05d}x"
        self.planted[code] = {"note"} if kind == "n" else set()
        return code

    def _expected_turn(
        self, chat: ExpectedChat, turn: str, text: str, speaker: str, to: tuple[str, ...]
    ) -> ExpectedTurn:
        heard = frozenset(to or chat.characters) | ({speaker} - {OWNER})
        return ExpectedTurn(turn, text, speaker, heard, frozenset(chat.guests), bool(to), self.steps)

    def _mark(self, said: list[ExpectedTurn], what: str) -> None:
        for one in said:
            for code in one.codes:
                self.planted[code].add(what)

    def _character(self, character: str) -> Character:
        return self.harness.characters.get(character)

    # --- checks ------------------------------------------------------------------------------------------

    def check_prompts(self) -> None:
        """Check every prompt that was sent since the last call."""
        sent, self.model.sent = self.model.sent, []
        for request in sent:
            self._check_prompt(request)

    def _check_prompt(self, request: CompletionRequest) -> None:
        chat, shape = self.chats.get(request.owner), shape_of(request)
        for code in codes(words(request)):
            if chat is not None and code[1] == "q" and self._is_allowed(request, shape, chat, code):
                self.allowed += 1
            elif chat is not None and self._is_in_kept_relationship(request, chat, code):
                continue
            else:
                self.leaks.append(self._described(request, code))

    def _is_allowed(self, request: CompletionRequest, shape: str, chat: ExpectedChat, code: str) -> bool:
        everybody = frozenset(chat.characters)
        if shape == "":
            exchange = chat.last_exchange
            question = exchange[0] if exchange is not None else None
            audience = question.witnesses if question is not None and question.private else everybody
            return self._knows(self.characters[speaker_of(request)], chat, code, audience)
        if shape == "SceneSummary":
            return self._knows(self.characters[speaker_of(request)], chat, code, frozenset(self.characters.values()))
        here = [one for one in chat.turns if code in one.codes and not one.hidden]
        if shape == "DialogueSummary":
            return any(chat.host in one.witnesses and not one.private for one in here)
        if shape == "TurnAnalysis":
            of = {self.characters[name] for name, _ in pairs_of(request)}
            return any(of <= one.witnesses for one in here)
        return bool(here)

    def _is_in_kept_relationship(self, request: CompletionRequest, chat: ExpectedChat, code: str) -> bool:
        """Whether only a relationship that a fork began with contains a code word of a turn that the fork changed."""
        changed = self.planted[code] & {"edited", "hidden", "deleted"}
        lines = [line for line in words(request).splitlines() if code in line]
        kept = ("- Learned the word", "How ", "You feel for ")
        return bool(changed) and code in chat.inherited and all(line.startswith(kept) for line in lines)

    def _described(self, request: CompletionRequest, code: str) -> str:
        names = {character: name for name, character in self.characters.items()}
        where = [
            f"{chat.room[-4:]}: {names.get(one.speaker, OWNER)} to {[names[witness] for witness in one.witnesses]}"
            for chat in self.chats.values()
            for one in chat.turns
            if code in one.codes
        ]
        context = next(line for line in words(request).splitlines() if code in line)
        asked = shape_of(request) or f"a reply of {speaker_of(request)}"
        marks = ", ".join(sorted(self.planted[code]))
        room = request.owner[-4:]
        return (
            f"step {self.steps}: {code} ({marks}) in a prompt for {asked} in {room}: {context[:120]!r}; said in {where}"
        )

    def _knows(self, character: str, chat: ExpectedChat, code: str, audience: frozenset[str]) -> bool:
        """Whether a character witnessed a code word since its last reset, and may mention it before an audience."""
        for other in self.chats.values():
            if other is not chat and other.root == chat.root:
                continue
            for one in other.turns:
                witnessed = (
                    code in one.codes
                    and not one.hidden
                    and character in one.witnesses
                    and one.step > self.reset_steps.get(character, -1)
                )
                if witnessed and (not one.private or audience - {character} <= one.witnesses):
                    return True
        return False

    def check_memories(self) -> None:
        """After all jobs, each character remembers exactly what it witnessed since its last reset.

        A message is remembered once it has a reply, or if none was asked for.
        """
        for chat in self.chats.values():
            shown = [one for one in chat.turns if not one.hidden]
            answers = {one.answers for one in shown}
            answered = [one for one in shown if one.speaker != OWNER or one.id in answers]
            for character in self.characters.values():
                witnessed = [
                    one
                    for one in answered
                    if character in one.witnesses and one.step > self.reset_steps.get(character, -1)
                ]
                kept = self.harness.memory.browse(owner=character, room=chat.room, kind="observation")
                found = {code for one in kept for code in codes(one.text)}
                wanted = {code for one in witnessed for code in one.codes if code[1] == "q"}
                unanswered = {code for one in shown if one.id not in answers for code in one.codes}
                assert found | unanswered == wanted | unanswered, (
                    f"too much: {found - wanted}, too little: {wanted - found} in {chat.room}"
                )

    def check_shown(self) -> None:
        """The story shows exactly the expected chats."""
        assert {chat.room for chat in self.harness.story.chats.chats()} == set(self.chats)
        for chat in self.chats.values():
            assert self.harness.texts(chat.room) == [one.text for one in chat.turns], self.steps
            assert set(self.harness.story.chats.chat(chat.room).guests) == chat.guests
