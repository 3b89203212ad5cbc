"""Random play on a stage, and beside it books that share no code with the story: who said what, and who heard it.

A line is a list of what was said on it. A rewind cuts the list, a fork copies it, a swipe changes its end; whoever was
not there has not heard it. What the story shows, and what it tells models, is held against these books.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import zip_longest

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
"""Little room, so that summaries stand in for what was said; much recall, so that what could leak has its chance."""

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
    "reset": 2,
    "unreset": 2,
    "begin": 2,
}


class RandomCommands:
    def __init__(self, stage: StoryHarness, honest: EchoModel, chance: random.Random) -> None:
        self.stage = stage
        self.honest = honest
        self.chance = chance
        self.bots: dict[str, str] = {}
        """Name → id."""
        self.lines: dict[str, ExpectedChat] = {}
        self.started_over: dict[str, int] = {}
        self.before_reset: tuple[dict[str, ExpectedChat], dict[str, int], str] | None = None
        self.number = 0
        self.steps = 0
        self.done: Counter[str] = Counter()
        self.planted: dict[str, set[str]] = {}
        """Code word → what befell it."""
        self.leaks: list[str] = []
        self.told = 0
        """How often a model was rightly told something."""

    async def prepare(self) -> None:
        await self.stage.roster.save_owner(OwnerProfile(name="Ana"))
        for name in NAMES:
            self.bots[name] = (await self.stage.create_character(name, persona=f"{name} keeps a light.")).id
        for name in NAMES[:3]:
            await self._begin(self.bots[name])

    async def step(self, command: str | None = None) -> str:
        """One random command that is possible now; returns which it was."""
        self.steps += 1
        self.stage.clock.advance(7)
        command = command or self.chance.choices(list(COMMANDS), list(COMMANDS.values()))[0]
        if not self.lines:
            command = "unreset" if self.before_reset is not None else "begin"
        line = self.chance.choice(list(self.lines.values())) if self.lines else None
        if await getattr(self, f"_{command}")(*([line] if command not in ("begin", "unreset") else [])):
            self.done[command] += 1
            if command not in ("say", "whisper", "reset"):
                self.before_reset = None
        if self.chance.random() < 0.7:  # now and then the work after a turn is still to be done when the next begins
            await self.stage.run_jobs()
        self.look()
        return command

    # --- commands: each returns whether it did something --------------------------------------------------

    async def _begin(self, host: str | None = None) -> bool:
        if len(self.lines) >= 7:
            return False
        host = host or self.chance.choice(list(self.bots.values()))
        room = await self.stage.start_chat(self._bot(host))
        self.lines[room] = ExpectedChat(room, room, host)
        return True

    async def _say(self, line: ExpectedChat, to: tuple[str, ...] = ()) -> bool:
        text, reply = self._text(), self._reply()
        begun = await self.stage.story.say(line.room, text, to=to)
        await self.stage.story.replies.wait(line.room)
        message = self._said(line, begun.turn, text, OWNER, to)
        line.said += [message, self._said(line, begun.reply, reply, begun.speaker, to)]
        line.swipes[begun.turn] = {begun.reply: (message, line.said[-1])}
        line.before = None
        if to:
            self._befell(line.said[-2:], "whispered")
        self.look()
        return True

    async def _whisper(self, line: ExpectedChat) -> bool:
        to = self.chance.sample(sorted(line.characters), self.chance.randint(1, len(line.characters)))
        return await self._say(line, tuple(to))

    async def _regenerate(self, line: ExpectedChat, text: str | None = None) -> bool:
        if not line.said:
            return False
        *earlier, message, old = line.said if line.said[-1].speaker != OWNER else [*line.said, None]
        assert message is not None
        whisper = message.private
        reply = self._reply()
        begun = await self.stage.story.regenerate(line.room, text=text)
        await self.stage.story.replies.wait(line.room)
        if text is not None:
            self._befell([message], "swiped")
            message = replace(message, text=text)
        # A whisper is answered to those it was for, wherever they are now.
        heard = frozenset(message.heard & line.characters) if whisper else frozenset(line.characters)
        given = ExpectedTurn(
            begun.reply, reply, begun.speaker, heard | {begun.speaker}, frozenset(line.guests), whisper, self.steps
        )
        if old is not None:
            self._befell([old], "swiped")
        line.said = [*earlier, message, given]
        line.swipes.setdefault(message.id, {})[begun.reply] = (message, given)
        line.before = None
        self.look()
        return True

    async def _edit(self, line: ExpectedChat) -> bool:
        return await self._regenerate(line, self._text())

    async def _choose(self, line: ExpectedChat) -> bool:
        if not line.said or line.said[-1].speaker == OWNER:
            return False
        message, current = line.said[-2:]
        others = [reply for reply in line.swipes[message.id] if reply != current.id]
        if not others:
            return False
        chosen = self.chance.choice(others)
        await self.stage.story.choose(line.room, chosen)
        self._befell([current], "swiped")
        line.said[-2:] = line.swipes[message.id][chosen]
        return True

    async def _rewind(self, line: ExpectedChat) -> bool:
        if len(line.said) < 2:
            return False
        at = self.chance.randrange(max(0, len(line.said) - 8), len(line.said))
        await self.stage.story.rewind(line.room, line.said[at].id)
        line.before = (list(line.said), set(line.guests))
        self._befell(line.said[at + 1 :], "rewound")
        if at + 1 < len(line.said):
            line.guests = set(line.said[at + 1].guests)
        del line.said[at + 1 :]
        return True

    async def _undo(self, line: ExpectedChat) -> bool:
        if line.before is None:
            try:
                await self.stage.story.undo_rewind(line.room)
            except BadPoint:
                return True
            raise AssertionError("An undo was granted where there was nothing to undo.")
        await self.stage.story.undo_rewind(line.room)
        line.said, line.guests = line.before
        line.before = None
        return True

    async def _fork(self, line: ExpectedChat) -> bool:
        if len(line.said) < 2 or len(self.lines) >= 7:
            return False
        at = self.chance.randrange(max(0, len(line.said) - 6), len(line.said))
        fork = await self.stage.story.fork(line.room, line.said[at].id)
        copy = line.copy()
        copy.room, copy.said, copy.before = fork.room, line.said[: at + 1], None
        if at + 1 < len(line.said):
            copy.guests = set(line.said[at + 1].guests)
        if copy.said[-1].speaker == OWNER:
            copy.swipes[copy.said[-1].id] = {}  # replies that came later are unknown here
        self._befell(line.said[at + 1 :], "forked")
        self.lines[fork.room] = copy
        return True

    async def _invite(self, line: ExpectedChat) -> bool:
        absent = sorted(set(self.bots.values()) - line.characters)
        if not absent:
            return False
        guest = self.chance.choice(absent)
        await self.stage.story.invite(line.room, guest)
        self._befell([one for one in line.said if guest not in one.heard], "absent")
        line.guests.add(guest)
        line.before = None
        return True

    async def _send_away(self, line: ExpectedChat) -> bool:
        if not line.guests:
            return False
        guest = self.chance.choice(sorted(line.guests))
        await self.stage.story.remove_guest(line.room, guest)
        line.guests.discard(guest)
        line.before = None
        return True

    async def _close(self, line: ExpectedChat) -> bool:
        await self.stage.story.close_scene(line.room)
        # A scene that was closed by hand is no job's doing: it stands between a rewind and its undo, unless a turn
        # caused it.
        if not line.said:
            line.before = None
        return True

    async def _correct(self, line: ExpectedChat) -> bool:
        """A correction by hand in the drawer."""
        world = self.stage.story.chats.chat(line.room).world
        bot = self.chance.choice(sorted(line.characters))
        edge = self.stage.story.relationships.get(world, bot, OWNER)
        what, value = f"edge.{world}.{bot}.you.affinity", self.chance.randint(0, 100)
        edit = ManualEdit(what=what, value=value, prior=edge.affinity)
        await self.stage.store.append([NewEvent(line.room, edit, OWNER)])
        line.before = None
        return True

    async def _reset(self, line: ExpectedChat) -> bool:
        bot = self.chance.choice(sorted(line.characters))
        self.before_reset = ({room: one.copy() for room, one in self.lines.items()}, dict(self.started_over), bot)
        await self.stage.story.reset(bot, self._bot(bot).name)
        for room, one in list(self.lines.items()):
            if one.host == bot:
                del self.lines[room]
                self._befell(one.said, "reset")
            elif bot in one.guests:
                one.guests.discard(bot)
                one.before = None
        self.started_over[bot] = self.steps
        return True

    async def _unreset(self) -> bool:
        """A reset is taken back whole, if nothing happened to the lines since."""
        if self.before_reset is None:
            return False
        before, started_over, bot = self.before_reset
        hosted = [line for line in before.values() if line.host == bot]
        if not hosted:
            return False
        await self.stage.story.undo_rewind(self.chance.choice(hosted).room)
        for line in hosted:
            self.lines[line.room] = line
            line.before = None
        for room, line in before.items():
            if line.host != bot and room in self.lines and bot in line.guests:
                self.lines[room].guests.add(bot)
                self.lines[room].before = None
        self.started_over = started_over
        self.before_reset = None
        return True

    # --- what was said -----------------------------------------------------------------------------------

    def _text(self) -> str:
        note = self._code("n")
        length = self.chance.choice([0, 0, 0, 20])
        more = " and then there is much more to tell of it" * (length // 10)
        return f"The {self.chance.choice(TOPICS)} has the word {self._code('q')}{more} (({note}))"

    def _reply(self) -> str:
        said = f"About the {self.chance.choice(TOPICS)} I say {self._code('q')}."
        self.honest.next_reply = said + " We wait and listen." * self.chance.choice([0, 0, 4])
        return self.honest.next_reply

    def _code(self, kind: str) -> str:
        self.number += 1
        code = f"z{kind}{self.number:05d}x"
        self.planted[code] = {"note"} if kind == "n" else set()
        return code

    def _said(self, line: ExpectedChat, turn: str, text: str, speaker: str, to: tuple[str, ...]) -> ExpectedTurn:
        heard = frozenset(to or line.characters) | ({speaker} - {OWNER})
        return ExpectedTurn(turn, text, speaker, heard, frozenset(line.guests), bool(to), self.steps)

    def _befell(self, said: list[ExpectedTurn], what: str) -> None:
        for one in said:
            for code in one.codes:
                self.planted[code].add(what)

    def _bot(self, bot: str) -> Character:
        return self.stage.roster.get(bot)

    # --- the law -----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Hold everything that models were told since the last look against the books."""
        sent, self.honest.sent = self.honest.sent, []
        for request in sent:
            self._look_at(request)

    def _look_at(self, request: CompletionRequest) -> None:
        line, shape = self.lines.get(request.owner), shape_of(request)
        for code in codes(words(request)):
            if line is not None and code[1] == "q" and self._may(request, shape, line, code):
                self.told += 1
            else:
                self.leaks.append(self._described(request, code))

    def _may(self, request: CompletionRequest, shape: str, line: ExpectedChat, code: str) -> bool:
        everybody = frozenset(line.characters)
        if shape == "":
            question = line.said[-2] if line.said and line.said[-1].speaker != OWNER else line.said[-1]
            audience = question.heard if question.private else everybody
            return self._knows(self.bots[speaker_of(request)], line, code, audience)
        if shape == "SceneSummary":
            return self._knows(self.bots[speaker_of(request)], line, code, frozenset(self.bots.values()))
        here = [one for one in line.said if code in one.codes]
        if shape == "DialogueSummary":
            return any(line.host in one.heard and not one.private for one in here)
        if shape == "StateUpdate":
            of = {self.bots[name] for name, _ in pairs_of(request)}
            return any(of <= one.heard for one in here)
        return bool(here)

    def _described(self, request: CompletionRequest, code: str) -> str:
        names = {bot: name for name, bot in self.bots.items()}
        where = [
            f"{line.room[-4:]} of {line.root[-4:]}: {names.get(one.speaker, OWNER)} to {[names[b] for b in one.heard]}"
            for line in self.lines.values()
            for one in line.said
            if code in one.codes
        ]
        told = next(line for line in words(request).splitlines() if code in line)
        asked = shape_of(request) or f"a reply of {speaker_of(request)}"
        befell = ", ".join(sorted(self.planted[code]))
        room = request.owner[-4:]
        return f"step {self.steps}: {code} ({befell}) told for {asked} in {room}: {told[:120]!r}; said in {where}"

    def _knows(self, bot: str, line: ExpectedChat, code: str, audience: frozenset[str]) -> bool:
        """Whether somebody heard it in this life, on a line that may be known here, and may say so before these."""
        for other in self.lines.values():
            if other is not line and other.root == line.root:
                continue
            for one in other.said:
                heard = code in one.codes and bot in one.heard and one.step > self.started_over.get(bot, -1)
                if heard and (not one.private or audience - {bot} <= one.heard):
                    return True
        return False

    def remembered(self) -> None:
        """When all work is done, everybody remembers what they heard in this life, and nothing else. S14, M6

        A message is remembered with the reply to it.
        """
        for line in self.lines.values():
            answered = [
                one
                for one, following in zip_longest(line.said, line.said[1:])
                if one.speaker != OWNER or (following is not None and following.speaker != OWNER)
            ]
            for bot in self.bots.values():
                heard = [one for one in answered if bot in one.heard and one.step > self.started_over.get(bot, -1)]
                kept = self.stage.memory.browse(owner=bot, room=line.room, kind="observation")
                found = {code for one in kept for code in codes(one.text)}
                wanted = {code for one in heard for code in one.codes if code[1] == "q"}
                assert found == wanted, f"too much: {found - wanted}, too little: {wanted - found} in {line.room}"

    def shown(self) -> None:
        """What the story shows is what the books say."""
        assert {chat.room for chat in self.stage.story.chats.chats()} == set(self.lines)
        for line in self.lines.values():
            assert self.stage.texts(line.room) == [one.text for one in line.said], self.steps
            assert set(self.stage.story.chats.chat(line.room).guests) == line.guests
