"""A conversation with a character that an agent plays. P2, P12

What a person says is in the log before the agent hears it, under an id that stays the same across restarts on either
side; the answer is recorded whole, once. What goes wrong is a sentence for the person, and recorded as why it ended.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters.people import PeopleQueries
from coterie.characters.service import Character, Characters
from coterie.conversation.errors import NoSuchTurn
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, Segment, UserTurn
from coterie.conversation.turns import Turn, TurnQueries
from coterie.eventstore import NewEvent, Store, Superseded
from coterie.eventstore.ranges import Ranges
from coterie.messaging.errors import BadFile
from coterie.messaging.files import RoomFiles
from coterie.messaging.ports import ChatStatus, NewChat, ReplyActivity, ReplyDelta, ReplyFinished, ReplyUpdate
from coterie.messaging.protocol import Attachment, RoomRef
from coterie.modes.remote.connections import (
    AgentConnection,
    AgentConnections,
    AgentRequest,
    AgentRestarted,
    AgentsSettings,
    AgentUpdate,
)
from coterie.modes.remote.events import AgentActed, AgentSentFile, RemoteChatQueries, RemoteOpened, RemoteRenamed
from coterie.modes.remote.protocol import (
    AgentError,
    AgentFailed,
    AgentSilent,
    DoneStep,
    FailedStep,
    FileInfo,
    FileStep,
    MessageFrame,
    PersonInfo,
    ProgressStep,
    TextStep,
    ToolCallStep,
    decode_data,
)

# A file that an agent sends, piece by piece: on the disk until it is whole, then in the character's workspace. P6


_READ_SIZE = 256 * 1024


class IncomingFile:
    def __init__(self, first: FileStep, largest: int) -> None:
        self._name = first.name
        self._media_type = first.media_type
        self._largest = largest
        self._size = 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the parcel

    def add(self, piece: FileStep) -> None:
        data = decode_data(piece.data)
        self._size += len(data)
        if self._size > self._largest:
            raise BadFile(f"The file is larger than {self._largest / 1e6:.0f} MB.", "Send a smaller one.")
        self._file.write(data)

    async def save(self, files: RoomFiles, room: RoomRef) -> Attachment:
        self._file.seek(0)
        try:
            return await files.save(room, self._name, self._chunks(), self._media_type)
        finally:
            self.close()

    def close(self) -> None:
        self._file.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := self._file.read(_READ_SIZE):
            yield chunk
            await asyncio.sleep(0)


MODE = "remote"
_RECENT_TURNS = 200
_MAX_STEPS = 500
_log = get_logger(__name__)


@dataclass
class _RemoteReply:
    """What has come of an answer so far."""

    text: str = ""
    steps: list[AgentActed] = field(default_factory=list)
    files: list[Attachment] = field(default_factory=list)
    incoming_file: IncomingFile | None = None
    error: str = ""

    def clear(self) -> None:
        if self.incoming_file is not None:
            self.incoming_file.close()
        self.text, self.steps, self.files, self.incoming_file = "", [], [], None


class RemoteConversation:
    mode = MODE

    def __init__(
        self,
        store: Store,
        roster: Characters,
        agents: AgentConnections,
        settings: AgentsSettings,
        files: Callable[[str], RoomFiles],
    ) -> None:
        """`files` are those of a character."""
        self._store = store
        self._roster = roster
        self._agents = agents
        self._settings = settings
        self._files = files
        self._people = PeopleQueries(store)
        self._chats = RemoteChatQueries(store)
        self._timeline = TurnQueries(store)
        self._running: dict[str, tuple[AgentConnection, str]] = {}
        self._stopped: set[str] = set()

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        bot, room = self._roster.get(character), f"room:{new_id()}"
        self._agents.connection(bot)  # or a sentence why there is none
        opened = RemoteOpened(character=bot.id, person=person, title=title or bot.name)
        return NewChat(room, [NewEvent(room, opened, person)])

    async def add_person(self, context: str, person: str) -> None:
        """Every message tells who wrote it; the agent does with that what it likes."""

    async def remove_person(self, context: str, person: str) -> None:
        """It was never told that they were in."""

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[ReplyUpdate]:
        chat, mark = self._chats.chat(context), f"say:{context}:{key}"
        before_turn = self._store.reader.turn_by_key(mark)
        turn = before_turn or new_id()
        if before_turn is None:
            told = redact("\n".join([text, *(f"({file.name}: {file.path})" for file in attachments)]).strip())
            segments = (Segment(kind="dialogue", text=told),)
            present = (person, chat.character)
            said = UserTurn(turn=turn, author=person, text=told, segments=segments, present=present)
            await self._store.append([NewEvent(context, said, person, key=mark, turn=turn)])
        elif (before := self._reply_to(context, turn)) is not None:
            yield await self._spoken(before)
            return
        whole = MessageFrame(
            id=turn, chat=context, person=self._person_info(person), text=redact(text), files=_file_infos(attachments)
        )
        async for speech in self._ask(
            context, turn, AgentRequest(whole, tuple(attachments), self._reader(chat.character))
        ):
            yield speech

    async def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        """A new message to the agent: what it did for the last one is done."""
        turns = self._timeline.latest(context, _RECENT_TURNS)
        question = next((turn for turn in reversed(turns) if turn.by_person), None)
        if question is None:
            raise NoSuchTurn("Nothing has been said yet.", "Say something first.")
        old = self._reply_to(context, question.id)
        if old is not None:
            seqs = self._store.reader.turn_seqs(context, old.id)
            drop = Ranges((seq, seq) for seq in seqs).pairs
            await self._store.append([NewEvent(context, Superseded(drop=drop, restore=()), person)])
        whole = MessageFrame(
            id=f"{question.id}.{new_id()}", chat=context, person=self._person_info(question.speaker), text=question.text
        )
        async for speech in self._ask(context, question.id, AgentRequest(whole)):
            yield speech

    async def stop(self, context: str) -> bool:
        if context not in self._running:
            return False
        line, message = self._running[context]
        self._stopped.add(context)
        await line.stop(message)
        return True

    def status(self, context: str) -> ChatStatus:
        chat = self._chats.chat(context)
        return ChatStatus(chat.title, self._roster.get(chat.character).name, self._timeline.count(context))

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([NewEvent(context, RemoteRenamed(title=title))])

    # --- inside ------------------------------------------------------------------------------------------------

    async def _ask(self, context: str, turn: str, asking: AgentRequest) -> AsyncIterator[ReplyUpdate]:
        bot = self._roster.get(self._chats.chat(context).character)
        answer, message = _RemoteReply(), asking.message.id
        try:
            line = self._agents.connection(bot)
            self._running[context] = (line, message)
            async with asyncio.timeout(self._settings.reply_timeout_s):
                async for news in line.ask(asking):
                    if (speech := await self._apply_update(answer, bot, context, news)) is not None:
                        yield speech
        except AgentError as error:
            answer.error = str(error)
        except TimeoutError:
            answer.error = str(AgentSilent(f"{bot.name} took too long."))
        except BadFile as error:
            answer.error = f"{bot.name} sent a file that cannot be kept. {error}"
        finally:
            self._running.pop(context, None)
            stopped = context in self._stopped
            self._stopped.discard(context)
            if answer.incoming_file is not None:
                answer.incoming_file.close()
        await self._record(context, turn, bot, answer, "stopped" if stopped else answer.error)
        await self._acknowledge(bot, message)
        yield ReplyFinished(answer.text, bot.name, answer.error, tuple(answer.files))

    async def _apply_update(
        self, answer: _RemoteReply, bot: Character, context: str, news: AgentUpdate
    ) -> ReplyUpdate | None:
        match news:
            case TextStep(text=text):
                text = redact(text)
                answer.text += text
                return ReplyDelta(text)
            case AgentRestarted():
                answer.clear()
            case FileStep():
                answer.incoming_file = answer.incoming_file or IncomingFile(news, self._files(bot.id).max_bytes)
                answer.incoming_file.add(news)
                if news.last:
                    where = RoomRef(surface=MODE, id=context)
                    answer.files.append(await answer.incoming_file.save(self._files(bot.id), where))
                    answer.incoming_file = None
            case FailedStep(text=text):
                answer.error = redact(str(AgentFailed(text.strip() or f"{bot.name} could not do it.")))
            case DoneStep():
                return None
            case ProgressStep():
                self._add_step(answer, AgentActed(what="progress", text=redact(news.text[:2_000])))
                return ReplyActivity(redact(news.text[:200]))
            case _:
                self._add_step(answer, AgentActed(what=news.type, name=news.name[:200], text=redact(news.text[:2_000])))
                return ReplyActivity(redact(news.name[:200])) if isinstance(news, ToolCallStep) else None
        return None

    def _add_step(self, answer: _RemoteReply, act: AgentActed) -> None:
        if len(answer.steps) < _MAX_STEPS:
            answer.steps.append(act)

    async def _record(self, context: str, turn: str, bot: Character, answer: _RemoteReply, why: str) -> None:
        reply = new_id()
        question = self._timeline.turn(context, turn)
        started = AssistantTurnStarted(reply=reply, speaker=bot.id, answers=turn, present=question.present)
        ended = AssistantTurn(reply=reply, text=answer.text, truncated=bool(why), why=why, model=MODE)
        files = [AgentSentFile(file=file) for file in answer.files]
        payloads = [*answer.steps, *files, started, ended]
        await self._store.append([NewEvent(context, payload, bot.id, turn=reply) for payload in payloads])

    async def _acknowledge(self, bot: Character, message: str) -> None:
        try:
            await self._agents.connection(bot).acknowledge(message)
        except AgentError:  # it left the registry meanwhile
            _log.info("an agent is gone", agent=bot.name)

    def _reply_to(self, context: str, turn: str) -> Turn | None:
        return next((one for one in self._timeline.latest(context, _RECENT_TURNS) if one.answers == turn), None)

    async def _spoken(self, turn: Turn) -> ReplyFinished:
        trouble = turn.why if turn.state == "truncated" and turn.why != "stopped" else ""
        sent = await self._store.read(turn.room, kinds=[AgentSentFile.kind])
        files = [it.payload.file for it in sent if it.turn == turn.id and isinstance(it.payload, AgentSentFile)]
        return ReplyFinished(turn.text, self._roster.get(turn.speaker).name, trouble, tuple(files))

    def _person_info(self, person: str) -> PersonInfo:
        return PersonInfo(id=person, name=self._people.person(person).name)

    def _reader(self, character: str) -> Callable[[Attachment], AsyncIterator[bytes]]:
        return self._files(character).read


def _file_infos(attachments: Sequence[Attachment]) -> tuple[FileInfo, ...]:
    return tuple(FileInfo(name=it.name, media_type=it.media_type, size=it.size) for it in attachments)
