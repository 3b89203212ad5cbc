"""A conversation with a character that an agent plays. P2, P12

What a person says is in the log before the agent hears it, under an id that stays the same across restarts on either
side; the answer is recorded whole, once. What goes wrong is a sentence for the person, and recorded as why it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.masking import mask
from coterie.cast.people import PeopleBook
from coterie.cast.roster import Bot, Roster
from coterie.engine.conversation import Doing, Opened, Speech, Spoken, Standing, Words
from coterie.engine.errors import NoSuchTurn
from coterie.engine.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.engine.files import RoomFiles
from coterie.engine.protocol import Attachment, RoomRef
from coterie.engine.surface_errors import BadFile
from coterie.engine.turns import Timeline, Turn
from coterie.kernel import Draft, Store, Superseded
from coterie.kernel.ranges import Ranges
from coterie.modes.remote.agents import RemoteAgents
from coterie.modes.remote.chats import RemoteBook
from coterie.modes.remote.errors import AgentError, AgentFailed, AgentSilent
from coterie.modes.remote.events import AgentActed, AgentSentFile, RemoteOpened, RemoteRenamed
from coterie.modes.remote.line import AgentLine, Anew, Asking, News
from coterie.modes.remote.parcel import Parcel
from coterie.modes.remote.settings import AgentsSettings
from coterie.modes.remote.wire import Done, Failed, FileNote, Progress, Say, SendFile, TextChunk, ToolCall, Who

MODE = "remote"
_SHOWN = 200
_MOST_ACTS = 500
_log = get_logger(__name__)


@dataclass
class _Answer:
    """What has come of an answer so far."""

    text: str = ""
    acts: list[AgentActed] = field(default_factory=list)
    files: list[Attachment] = field(default_factory=list)
    parcel: Parcel | None = None
    trouble: str = ""

    def forget(self) -> None:
        if self.parcel is not None:
            self.parcel.close()
        self.text, self.acts, self.files, self.parcel = "", [], [], None


class RemoteConversation:
    mode = MODE

    def __init__(
        self,
        store: Store,
        roster: Roster,
        agents: RemoteAgents,
        settings: AgentsSettings,
        files: Callable[[str], RoomFiles],
    ) -> None:
        """`files` are those of a character."""
        self._store = store
        self._roster = roster
        self._agents = agents
        self._settings = settings
        self._files = files
        self._people = PeopleBook(store)
        self._book = RemoteBook(store)
        self._timeline = Timeline(store)
        self._under_way: dict[str, tuple[AgentLine, str]] = {}
        self._stopped: set[str] = set()

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> Opened:
        bot, room = self._roster.bot(character), f"room:{new_id()}"
        self._agents.line(bot)  # or a sentence why there is none
        opened = RemoteOpened(character=bot.id, person=person, title=title or bot.name)
        return Opened(room, [Draft(room, opened, person)])

    async def let_in(self, context: str, person: str) -> None:
        """Every message tells who wrote it; the agent does with that what it likes."""

    async def let_go(self, context: str, person: str) -> None:
        """It was never told that they were in."""

    async def say(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[Speech]:
        chat, mark = self._book.chat(context), f"say:{context}:{key}"
        before_turn = self._store.reader.turn_by_key(mark)
        turn = before_turn or new_id()
        if before_turn is None:
            told = mask("\n".join([text, *(f"({file.name}: {file.path})" for file in attachments)]).strip())
            segments = (Segment(kind="dialogue", text=told),)
            present = (person, chat.character)
            said = UserTurn(turn=turn, author=person, text=told, segments=segments, present=present)
            await self._store.append([Draft(context, said, person, key=mark, turn=turn)])
        elif (before := self._reply_to(context, turn)) is not None:
            yield await self._spoken(before)
            return
        whole = Say(id=turn, chat=context, person=self._who(person), text=mask(text), files=_notes(attachments))
        async for speech in self._ask(context, turn, Asking(whole, tuple(attachments), self._reader(chat.character))):
            yield speech

    async def retry(self, context: str, *, person: str) -> AsyncIterator[Speech]:
        """A new message to the agent: what it did for the last one is done."""
        turns = self._timeline.latest(context, _SHOWN)
        question = next((turn for turn in reversed(turns) if turn.by_person), None)
        if question is None:
            raise NoSuchTurn("Nothing has been said yet.", "Say something first.")
        old = self._reply_to(context, question.id)
        if old is not None:
            seqs = self._store.reader.turn_seqs(context, old.id)
            drop = Ranges((seq, seq) for seq in seqs).pairs
            await self._store.append([Draft(context, Superseded(drop=drop, restore=()), person)])
        whole = Say(
            id=f"{question.id}.{new_id()}", chat=context, person=self._who(question.speaker), text=question.text
        )
        async for speech in self._ask(context, question.id, Asking(whole)):
            yield speech

    async def stop(self, context: str) -> bool:
        if context not in self._under_way:
            return False
        line, message = self._under_way[context]
        self._stopped.add(context)
        await line.stop(message)
        return True

    def standing(self, context: str) -> Standing:
        chat = self._book.chat(context)
        return Standing(chat.title, self._roster.bot(chat.character).name, self._timeline.count(context))

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([Draft(context, RemoteRenamed(title=title))])

    # --- inside ------------------------------------------------------------------------------------------------

    async def _ask(self, context: str, turn: str, asking: Asking) -> AsyncIterator[Speech]:
        bot = self._roster.bot(self._book.chat(context).character)
        answer, message = _Answer(), asking.say.id
        try:
            line = self._agents.line(bot)
            self._under_way[context] = (line, message)
            async with asyncio.timeout(self._settings.longest_s):
                async for news in line.ask(asking):
                    if (speech := await self._heard(answer, bot, context, news)) is not None:
                        yield speech
        except AgentError as error:
            answer.trouble = str(error)
        except TimeoutError:
            answer.trouble = str(AgentSilent(f"{bot.name} took too long."))
        except BadFile as error:
            answer.trouble = f"{bot.name} sent a file that cannot be kept. {error}"
        finally:
            self._under_way.pop(context, None)
            stopped = context in self._stopped
            self._stopped.discard(context)
            if answer.parcel is not None:
                answer.parcel.close()
        await self._record(context, turn, bot, answer, "stopped" if stopped else answer.trouble)
        await self._settle(bot, message)
        yield Spoken(answer.text, bot.name, answer.trouble, tuple(answer.files))

    async def _heard(self, answer: _Answer, bot: Bot, context: str, news: News) -> Speech | None:
        match news:
            case TextChunk(text=text):
                text = mask(text)
                answer.text += text
                return Words(text)
            case Anew():
                answer.forget()
            case SendFile():
                answer.parcel = answer.parcel or Parcel(news, self._files(bot.id).largest)
                answer.parcel.add(news)
                if news.last:
                    where = RoomRef(surface=MODE, id=context)
                    answer.files.append(await answer.parcel.keep(self._files(bot.id), where))
                    answer.parcel = None
            case Failed(text=text):
                answer.trouble = mask(str(AgentFailed(text.strip() or f"{bot.name} could not do it.")))
            case Done():
                return None
            case Progress():
                self._note(answer, AgentActed(what="progress", text=mask(news.text[:2_000])))
                return Doing(mask(news.text[:200]))
            case _:
                self._note(answer, AgentActed(what=news.type, name=news.name[:200], text=mask(news.text[:2_000])))
                return Doing(mask(news.name[:200])) if isinstance(news, ToolCall) else None
        return None

    def _note(self, answer: _Answer, act: AgentActed) -> None:
        if len(answer.acts) < _MOST_ACTS:
            answer.acts.append(act)

    async def _record(self, context: str, turn: str, bot: Bot, answer: _Answer, why: str) -> None:
        reply = new_id()
        question = self._timeline.turn(context, turn)
        started = AssistantTurnStarted(reply=reply, speaker=bot.id, answers=turn, present=question.present)
        ended = AssistantTurn(reply=reply, text=answer.text, truncated=bool(why), why=why, model=MODE)
        files = [AgentSentFile(file=file) for file in answer.files]
        payloads = [*answer.acts, *files, started, ended]
        await self._store.append([Draft(context, payload, bot.id, turn=reply) for payload in payloads])

    async def _settle(self, bot: Bot, message: str) -> None:
        try:
            await self._agents.line(bot).settle(message)
        except AgentError:  # it left the registry meanwhile
            _log.info("an agent is gone", agent=bot.name)

    def _reply_to(self, context: str, turn: str) -> Turn | None:
        return next((one for one in self._timeline.latest(context, _SHOWN) if one.answers == turn), None)

    async def _spoken(self, turn: Turn) -> Spoken:
        trouble = turn.why if turn.state == "truncated" and turn.why != "stopped" else ""
        sent = await self._store.read(turn.room, kinds=[AgentSentFile.kind])
        files = [it.payload.file for it in sent if it.turn == turn.id and isinstance(it.payload, AgentSentFile)]
        return Spoken(turn.text, self._roster.bot(turn.speaker).name, trouble, tuple(files))

    def _who(self, person: str) -> Who:
        return Who(id=person, name=self._people.person(person).name)

    def _reader(self, character: str) -> Callable[[Attachment], AsyncIterator[bytes]]:
        return self._files(character).read


def _notes(attachments: Sequence[Attachment]) -> tuple[FileNote, ...]:
    return tuple(FileNote(name=it.name, media_type=it.media_type, size=it.size) for it in attachments)
