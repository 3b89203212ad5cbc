"""The messaging port of the remote mode: chats with characters that an agent plays.

A message is stored before the agent receives it, under an id that stays the same across restarts of either side. The
reply is stored once, when it is complete; an error becomes a sentence for the person and the reason why it ended.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import StreamRedactor, redact
from coterie.characters import Character, Characters, PeopleQueries
from coterie.conversation import AssistantTurn, AssistantTurnStarted, NoSuchTurn, Segment, Turn, TurnQueries, UserTurn
from coterie.eventstore import NewEvent, Ranges, Store, Superseded
from coterie.messaging import (
    Attachment,
    BadFile,
    ChatStatus,
    NewChat,
    ReplyActivity,
    ReplyDelta,
    ReplyFinished,
    ReplyUpdate,
    RoomFiles,
    RoomRef,
    with_quote,
)
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

MODE = "remote"
_RECENT_TURNS = 200
_MAX_STEPS = 500
_READ_SIZE = 256 * 1024
_log = get_logger(__name__)


class IncomingFile:
    """A file that an agent sends in chunks: a temporary file until it is complete."""

    def __init__(self, first: FileStep, max_bytes: int) -> None:
        self._name = first.name
        self._media_type = first.media_type
        self._max_bytes = max_bytes
        self._size = 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`

    def add(self, chunk: FileStep) -> None:
        data = decode_data(chunk.data)
        self._size += len(data)
        if self._size > self._max_bytes:
            raise BadFile(f"The file is larger than {self._max_bytes / 1e6:.0f} MB.", "Send a smaller one.")
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


@dataclass
class _RemoteReply:
    """A reply as far as it has been received."""

    text: str = ""
    steps: list[AgentActed] = field(default_factory=list)
    files: list[Attachment] = field(default_factory=list)
    incoming_file: IncomingFile | None = None
    error: str = ""
    redactor: StreamRedactor = field(default_factory=StreamRedactor)
    """Removes secrets from the text, also one that arrives in several parts."""

    def add_step(self, step: AgentActed) -> None:
        if len(self.steps) < _MAX_STEPS:
            self.steps.append(step)

    def clear(self) -> None:
        if self.incoming_file is not None:
            self.incoming_file.close()
        self.text, self.steps, self.files, self.incoming_file = "", [], [], None
        self.redactor = StreamRedactor()


class RemoteConversation:
    mode = MODE

    def __init__(
        self,
        store: Store,
        characters: Characters,
        agents: AgentConnections,
        settings: AgentsSettings,
        files: Callable[[str], RoomFiles],
    ) -> None:
        """`files` returns the files of a character."""
        self._store = store
        self._characters = characters
        self._agents = agents
        self._settings = settings
        self._files = files
        self._people = PeopleQueries(store)
        self._chats = RemoteChatQueries(store)
        self._timeline = TurnQueries(store)
        self._running: dict[str, tuple[AgentConnection, str]] = {}
        self._stopped: set[str] = set()

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        agent_character, room = self._characters.get(character), f"room:{new_id()}"
        self._agents.connection(agent_character)  # raises if no agent plays it
        opened = RemoteOpened(character=agent_character.id, person=person, title=title or agent_character.name)
        return NewChat(room, [NewEvent(room, opened, person)])

    async def add_person(self, context: str, person: str) -> None:
        """Nothing to do: every message to the agent names its author."""

    async def remove_person(self, context: str, person: str) -> None:
        """Nothing to do: every message to the agent names its author."""

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = (), quote: str = ""
    ) -> AsyncIterator[ReplyUpdate]:
        chat, event_key, text = self._chats.chat(context), f"say:{context}:{key}", with_quote(text, quote)
        repeated = self._store.reader.turn_by_key(event_key)
        turn = repeated or new_id()
        if repeated is None:
            recorded = redact("\n".join([text, *(f"({file.name}: {file.path})" for file in attachments)]).strip())
            segments = (Segment(kind="dialogue", text=recorded),)
            present = (person, chat.character)
            message = UserTurn(turn=turn, author=person, text=recorded, segments=segments, present=present)
            await self._store.append([NewEvent(context, message, person, key=event_key, turn=turn)])
        elif (reply := self._reply_to(context, turn)) is not None:
            yield await self._stored_reply(reply)
            return
        frame = MessageFrame(
            id=turn,
            chat=context,
            person=self._person_info(person),
            text=redact(text),
            files=tuple(FileInfo(name=one.name, media_type=one.media_type, size=one.size) for one in attachments),
        )
        room = RoomRef(surface=MODE, id=context)
        read = functools.partial(self._files(chat.character).read, room=room, sender=person)
        request = AgentRequest(frame, tuple(attachments), read)
        async for update in self._ask(context, turn, request):
            yield update

    async def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        """Ask again under a new id, so that the agent handles the message again."""
        turns = self._timeline.latest(context, _RECENT_TURNS)
        message = next((turn for turn in reversed(turns) if turn.by_person), None)
        if message is None:
            raise NoSuchTurn("There is no message yet.", "Send a message first.")
        old = self._reply_to(context, message.id)
        if old is not None:
            seqs = self._store.reader.turn_seqs(context, old.id)
            drop = Ranges((seq, seq) for seq in seqs).pairs
            await self._store.append([NewEvent(context, Superseded(drop=drop, restore=()), person)])
        author = self._person_info(message.speaker)
        frame = MessageFrame(id=f"{message.id}.{new_id()}", chat=context, person=author, text=message.text)
        async for update in self._ask(context, message.id, AgentRequest(frame)):
            yield update

    async def stop(self, context: str) -> bool:
        if context not in self._running:
            return False
        connection, message = self._running[context]
        self._stopped.add(context)
        await connection.stop(message)
        return True

    def status(self, context: str) -> ChatStatus:
        chat = self._chats.chat(context)
        return ChatStatus(chat.title, self._characters.get(chat.character).name, self._timeline.count(context))

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([NewEvent(context, RemoteRenamed(title=title))])

    async def _ask(self, context: str, turn: str, request: AgentRequest) -> AsyncIterator[ReplyUpdate]:
        character = self._characters.get(self._chats.chat(context).character)
        reply, message = _RemoteReply(), request.message.id
        try:
            connection = self._agents.connection(character)
            self._running[context] = (connection, message)
            async with asyncio.timeout(self._settings.reply_timeout_s):
                async for agent_update in connection.ask(request):
                    if (update := await self._apply_update(reply, character, context, agent_update)) is not None:
                        yield update
        except AgentError as error:
            reply.error = str(error)
        except TimeoutError:
            reply.error = str(AgentSilent(f"{character.name} took too long."))
        except BadFile as error:
            reply.error = f"{character.name} sent a file that cannot be stored. {error}"
        finally:
            self._running.pop(context, None)
            stopped = context in self._stopped
            self._stopped.discard(context)
            if reply.incoming_file is not None:
                reply.incoming_file.close()
        if rest := reply.redactor.flush():
            reply.text += rest
            yield ReplyDelta(rest)
        await self._record(context, turn, character, reply, "stopped" if stopped else reply.error)
        await self._acknowledge(character, message)
        yield ReplyFinished(reply.text, character.name, reply.error, tuple(reply.files))

    async def _apply_update(
        self, reply: _RemoteReply, character: Character, context: str, update: AgentUpdate
    ) -> ReplyUpdate | None:
        match update:
            case TextStep(text=text):
                shown = reply.redactor.filter(text)
                reply.text += shown
                return ReplyDelta(shown) if shown else None
            case AgentRestarted():
                reply.clear()
            case FileStep():
                files = self._files(character.id)
                reply.incoming_file = reply.incoming_file or IncomingFile(update, files.max_bytes)
                reply.incoming_file.add(update)
                if update.last:
                    reply.files.append(await reply.incoming_file.save(files, RoomRef(surface=MODE, id=context)))
                    reply.incoming_file = None
            case FailedStep(text=text):
                reply.error = redact(str(AgentFailed(text.strip() or f"{character.name} could not do it.")))
            case DoneStep():
                return None
            case ProgressStep():
                reply.add_step(AgentActed(what="progress", text=redact(update.text[:2_000])))
                return ReplyActivity(redact(update.text[:200]))
            case _:
                reply.add_step(AgentActed(what=update.type, name=update.name[:200], text=redact(update.text[:2_000])))
                return ReplyActivity(redact(update.name[:200])) if isinstance(update, ToolCallStep) else None
        return None

    async def _record(self, context: str, turn: str, character: Character, reply: _RemoteReply, why: str) -> None:
        reply_id = new_id()
        message = self._timeline.turn(context, turn)
        started = AssistantTurnStarted(reply=reply_id, speaker=character.id, answers=turn, present=message.present)
        ended = AssistantTurn(reply=reply_id, text=reply.text, truncated=bool(why), why=why, model=MODE)
        payloads = [*reply.steps, *(AgentSentFile(file=file) for file in reply.files), started, ended]
        await self._store.append([NewEvent(context, payload, character.id, turn=reply_id) for payload in payloads])

    async def _acknowledge(self, character: Character, message: str) -> None:
        try:
            await self._agents.connection(character).acknowledge(message)
        except AgentError:  # it was removed from the registry during the reply
            _log.info("an agent is no longer registered", agent=character.name)

    def _reply_to(self, context: str, turn: str) -> Turn | None:
        return next((reply for reply in self._timeline.latest(context, _RECENT_TURNS) if reply.answers == turn), None)

    async def _stored_reply(self, turn: Turn) -> ReplyFinished:
        error = turn.why if turn.state == "truncated" and turn.why != "stopped" else ""
        sent = await self._store.read(turn.room, kinds=[AgentSentFile.kind])
        files = [
            event.payload.file for event in sent if event.turn == turn.id and isinstance(event.payload, AgentSentFile)
        ]
        return ReplyFinished(turn.text, self._characters.get(turn.speaker).name, error, tuple(files))

    def _person_info(self, person: str) -> PersonInfo:
        return PersonInfo(id=person, name=self._people.person(person).name)
