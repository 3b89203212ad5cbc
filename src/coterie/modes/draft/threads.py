"""Threads about a document: messages, and replies that contain proposals.

A message is durable before a model is asked. Its reply streams, and each proposal is recorded as its block closes. What
remains after the reply, complete or not, is done by one job that can be repeated: blocks that a crash kept from being
recorded, notes about invalid blocks, better quotes for text that was not found, and notifications.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from coterie.base.errors import BadPoint, CoterieError
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.untrusted import excerpt
from coterie.characters import Characters, NoSuchCharacter, NoSuchPerson, PeopleQueries, PromptTexts, Workspaces
from coterie.conversation import (
    AssistantTurn,
    AssistantTurnStarted,
    Busy,
    Replies,
    Segment,
    Turn,
    TurnQueries,
    UserTurn,
)
from coterie.eventstore import AnyEvent, Handler, Job, JobResult, NewEvent, NewJob, Store
from coterie.llm import Caller, ModelError, Models, Role, status_of
from coterie.messaging import PersonalNotice
from coterie.modes.draft.diff import Span, edits_between
from coterie.modes.draft.documents import Documents
from coterie.modes.draft.edit_formats import DEFAULT_FORMATS, BrokenBlock, EditBlock, parse_reply, parser_for
from coterie.modes.draft.errors import NoSuchDocument, PositionUnknown
from coterie.modes.draft.events import (
    AnchorData,
    ChangeRepaired,
    DocumentWatched,
    Member,
    NoticeGiven,
    NoticeKind,
    NoticesRead,
    SelectionQuoted,
    ThreadKind,
    ThreadNoted,
    ThreadOpened,
)
from coterie.modes.draft.git import Contributor, DocumentVersion
from coterie.modes.draft.locate import CONTEXT_LENGTH, Anchor, anchor_at, move_anchors, relocate
from coterie.modes.draft.prompts import ThreadMemory, quote_repair_prompt, thread_prompt
from coterie.modes.draft.proposals import locate_edit, proposal_event, proposal_id
from coterie.modes.draft.queries import Proposal, ProposalQueries, Thread, ThreadQueries
from coterie.modes.draft.replies import ReplyWithProposals
from coterie.modes.draft.settings import DraftSettings

FINISH_REPLY_JOB = "draft_settle"
OWN_THREAD: NoticeKind = "chat_reply_to_my_message"
WATCHED_DOCUMENT: NoticeKind = "chat_message_in_participated_thread"
_HISTORY_TURNS = 60
_RECALL_TURNS = 2
"""Memories are recalled for the last messages, this many."""
_UNNAMED_OWNER = "You"
"""The owner's name before they give one. It is a word of every other sentence."""
_BROKEN_BLOCK_NOTES = {
    "unclosed": "A proposal broke off before its end. It is in the reply as text.",
    "nested": "A proposal was begun inside another. The outer one is in the reply as text.",
    "empty": "A proposal changed nothing. It is in the reply as text.",
    "garbled": "A proposal could not be read. It is in the reply as text.",
    "too long": "A proposal was too long. It is in the reply as text.",
}
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartedReply:
    """A recorded message and the reply to it that has begun; `reply` and `speaker` are empty if nobody answers."""

    turn: str
    reply: str = ""
    speaker: str = ""


class Threads:
    def __init__(
        self,
        store: Store,
        characters: Characters,
        models: Models,
        settings: DraftSettings,
        documents: Documents,
        queries: ThreadQueries,
        proposals: ProposalQueries,
        notifications: Notifications,
        memory: ThreadMemory,
        timeline: TurnQueries,
        replies: Replies,
        character_folders: Workspaces | None = None,
    ) -> None:
        self._store = store
        self._character_folders = character_folders
        self._characters = characters
        self._people = PeopleQueries(store)
        self._models = models
        self._settings = settings
        self._documents = documents
        self._queries = queries
        self._proposals = proposals
        self._notifications = notifications
        self._memory = memory
        self._timeline = timeline
        self._replies = replies
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def open_thread(
        self,
        workspace: str,
        document: str,
        members: Sequence[Member],
        contributor: Contributor,
        *,
        branch: str | None = None,
        title: str = "",
        selection: Span | None = None,
        exact: str = "",
        against: str = "",
    ) -> Thread:
        """Open a thread about a document or a selection of it; with `against`, a review against another branch."""
        version = await self._documents.read(workspace, document, branch)
        for member in members:
            self._characters.get(member.bot)
        if not members:
            raise NoSuchCharacter("The thread has no character that could answer.", "Choose one.")
        kind: ThreadKind = "review" if against else "anchored" if selection is not None else "discussion"
        opened = ThreadOpened(
            workspace=workspace,
            document=document,
            branch=version.branch,
            thread_kind=kind,
            title=title.strip() or version.title,
            members=tuple(map(self._with_format, members)),
            place=_anchor_selection(version, selection, exact) if selection is not None else None,
            blob=version.blob,
            against=against,
        )
        room = f"room:{new_id()}"
        await self._store.append([NewEvent(room, opened, contributor.id)])
        return self._queries.thread(room)

    async def send_message(
        self,
        room: str,
        text: str,
        contributor: Contributor,
        *,
        to: str | None = None,
        selection: Span | None = None,
        exact: str = "",
        key: str | None = None,
    ) -> StartedReply:
        """Record a message and start the reply to it, if a character is addressed, in the background.

        `to` is the member that answers; empty for nobody; None decides by the text (see `addressed_member`). A repeated
        `key` returns the first turn.
        """
        async with self._locks.setdefault(room, asyncio.Lock()):
            event_key = None if key is None else f"say:{room}:{key}"
            if event_key is not None and (started := self._find_started(room, event_key)) is not None:
                return started
            thread = self._queries.thread(room)
            self._require_idle(room)
            if not text.strip():
                raise BadPoint("There is nothing in the message.", "Write something, then send it.")
            member = self._answering_member(thread, text, to, contributor)
            version = await self._documents.read(thread.workspace, thread.document, thread.branch)
            turn = new_id()
            segment = Segment(kind="dialogue", text=text)
            message = UserTurn(turn=turn, author=contributor.id, text=text, segments=(segment,))
            new_events = [NewEvent(room, message, contributor.id, key=event_key, turn=turn)]
            if selection is not None:
                place = _anchor_selection(version, selection, exact)
                quoted = SelectionQuoted(turn=turn, place=place, blob=version.blob)
                new_events.append(NewEvent(room, quoted, contributor.id, turn=turn))
            new_events += self._notifications.events_for(thread, turn, contributor.id, self._participants(room))
            if member is None:
                await self._store.append(new_events)
                return StartedReply(turn)
            return await self._start_reply(thread, member, version, turn, new_events)

    async def retry_reply(self, room: str, reply: str) -> StartedReply:
        """Start another reply to the message whose reply failed or broke off; the failed one stays in the thread."""
        async with self._locks.setdefault(room, asyncio.Lock()):
            thread = self._queries.thread(room)
            self._require_idle(room)
            failed = self._timeline.turn(room, reply)
            if not can_retry(failed, self._timeline.latest(room, _HISTORY_TURNS)):
                raise BadPoint(
                    "This reply cannot be retried.", "Only the last reply to a message, if it broke off, can."
                )
            version = await self._documents.read(thread.workspace, thread.document, thread.branch)
            return await self._start_reply(thread, thread.member(failed.speaker), version, failed.answers or "", [])

    def _require_idle(self, room: str) -> None:
        if self._timeline.open_replies(room):
            raise Busy("A reply is still being written in this thread.", "Wait for the reply, or stop it.")

    async def stop_reply(self, room: str) -> bool:
        self._queries.thread(room)
        return await self._replies.stop(room)

    def current_anchor(self, thread: Thread, version: DocumentVersion) -> Anchor | None:
        """Where the text that a thread is about is in a version; None if it is about no text, or the text is gone."""
        return self._anchor(thread, version, thread.place, thread.blob)

    def anchor_in(self, thread: Thread, text: str, blob: str) -> Anchor | None:
        """The same for a text and its blob."""
        return self.current_anchor(thread, DocumentVersion(thread.document, thread.branch, "", blob, text))

    # --- replies -------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        return {FINISH_REPLY_JOB: self._finish_reply}

    async def recover(self) -> int:
        """Close the replies that a crash left open, with the proposals they contain so far."""
        return await self._replies.recover(
            lambda turn: lambda _: [_finish_job(turn.room, turn.id)], lambda turn: self._queries.is_thread(turn.room)
        )

    async def _start_reply(
        self, thread: Thread, member: Member, version: DocumentVersion, turn: str, new_events: list[NewEvent]
    ) -> StartedReply:
        """Append the events and the start of the reply together, then stream it."""
        room, reply = thread.room, new_id()
        started = AssistantTurnStarted(reply=reply, speaker=member.bot, answers=turn)
        await self._store.append([*new_events, NewEvent(room, started, member.bot, turn=reply)])
        try:
            await self._stream_reply(thread, member, version, turn, reply)
        except Exception as error:
            if not isinstance(error, CoterieError):
                _log.exception("reply not started", room=room, reply=reply)
            await self._store.append(
                [NewEvent(room, _failed(reply, error), member.bot, key=f"reply:{room}:{reply}", turn=reply)],
                jobs=[_finish_job(room, reply)],
            )
        return StartedReply(turn, reply, member.bot)

    async def _stream_reply(
        self, thread: Thread, member: Member, version: DocumentVersion, turn: str, reply: str
    ) -> None:
        room = thread.room
        turns = [one for one in self._timeline.latest(room, _HISTORY_TURNS) if _counts_in_prompt(one, turn)]
        question = " ".join(one.text for one in turns[-_RECALL_TURNS:])
        memories = await asyncio.to_thread(self._memory.recall, thread, member.bot, self._participants(room), question)
        task = member.model or None
        target = self._models.catalogue.chain(Role.DRAFT, task)[0]
        prompt = thread_prompt(
            self._characters.get(member.bot),
            member,
            memories,
            version,
            turns,
            {**self._names(thread), **{one.speaker: self._person_name(one.speaker) for one in turns if one.by_person}},
            {one.id: place for one in turns if (place := self._queries.quote(room, one.id)) is not None},
            [proposal for proposal in self._proposals.of_thread(room) if proposal.state == "declined"],
            self._settings,
            self._models.tokens.counter(target),
            self._models.context_window(Role.DRAFT, task),
            self._character_folders.prompts(member.bot) if self._character_folders is not None else PromptTexts(),
        )
        stream = self._models.stream(Role.DRAFT, prompt, caller=Caller(room, member.bot), task=task)

        async def on_block(number: int, block: EditBlock) -> None:
            await self._record_proposal(thread, member.bot, turn, reply, number, block)

        recording = ReplyWithProposals(stream, parser_for(member.format), on_block)
        await self._replies.start(room, reply, recording, member.bot, lambda _: [_finish_job(room, reply)])

    async def _record_proposal(
        self, thread: Thread, author: str, turn: str, reply: str, number: int, block: EditBlock
    ) -> None:
        version = await self._documents.read(thread.workspace, thread.document, thread.branch)
        selected = self._queries.selection(thread.room, turn)
        context = self._anchor(thread, version, *(selected or (thread.place, thread.blob)))
        proposed = await asyncio.to_thread(proposal_event, thread, reply, number, author, block, version, context)
        key = f"change:{proposed.change}"
        await self._store.append([NewEvent(thread.room, proposed, author, key=key, turn=reply)])

    async def _finish_reply(self, job: Job) -> JobResult:
        """Do what remains after a reply. It may run several times."""
        room, reply = str(job.payload["room"]), str(job.payload["reply"])
        thread = self._queries.thread(room)
        turn = self._timeline.turn(room, reply)
        parts = parse_reply(turn.text, thread.member(turn.speaker).format)
        blocks = [part for part in parts if isinstance(part, EditBlock)]
        for number, block in enumerate(blocks, start=1):
            if not self._proposals.has(proposal_id(reply, number)):
                await self._record_proposal(thread, turn.speaker, turn.answers or "", reply, number, block)
        for proposal in self._proposals.of_reply(room, reply):
            if proposal.state == "pending" and not proposal.placed and not proposal.repaired:
                await self._repair_quote(thread, proposal)
        notes = [_BROKEN_BLOCK_NOTES[part.reason] for part in parts if isinstance(part, BrokenBlock)]
        new_events = [NewEvent(room, ThreadNoted(text=note, about=reply)) for note in notes]
        if turn.state == "done" or turn.why == "length":  # a failed or stopped reply is no news
            new_events += self._notifications.events_for(thread, reply, turn.speaker, self._participants(room))
        return JobResult(new_events)

    async def _repair_quote(self, thread: Thread, proposal: Proposal) -> None:
        """Ask the model once for a better quote of text that was not found, or found several times."""
        version = await self._documents.read(thread.workspace, thread.document, thread.branch)
        task = thread.member(proposal.author).model or None
        target = self._models.catalogue.chain(Role.DRAFT, task)[0]
        prompt = quote_repair_prompt(
            version,
            proposal,
            self._settings,
            self._models.tokens.counter(target),
            self._models.context_window(Role.DRAFT, task),
        )
        quote = ""
        try:
            caller = Caller(thread.room, proposal.author)
            answer = await self._models.ask(Role.DRAFT, prompt, caller=caller, task=task)
            quote = _quoted_original(answer.text)
        except ModelError as error:
            _log.info("no better quote", change=proposal.id, error=error.what)
        context = self.current_anchor(thread, version)
        edit = locate_edit(quote, proposal.proposed, version, context) if quote.strip() else None
        repaired = ChangeRepaired(
            change=proposal.id,
            quote=quote,
            commit=version.commit,
            blob=version.blob,
            place=edit.place if edit else None,
            how=edit.how if edit else None,
            score=edit.score if edit else 1.0,
        )
        await self._store.append([NewEvent(thread.room, repaired, proposal.author, key=f"repair:{proposal.id}")])

    # --- members, participants and positions ---------------------------------------------------------------------

    def _anchor(self, thread: Thread, version: DocumentVersion, place: AnchorData | None, blob: str) -> Anchor | None:
        """Where text recorded in `blob` is in a version; None if it is gone."""
        if place is None:
            return None
        recorded = Anchor(place.exact, place.prefix, place.suffix, place.start, place.end, blob)
        if version.text[place.start : place.end] == place.exact:
            return recorded
        try:
            old = self._documents.workspaces.repository(thread.workspace).blob_text(blob)
        except NoSuchDocument:
            old = ""
        (anchor,) = move_anchors([recorded], old, version.text, edits_between(old, version.text), version.blob)
        return relocate(anchor, version.text)

    def _with_format(self, member: Member) -> Member:
        """With the edit format of the member's provider, if it has none of its own."""
        if member.format != "auto":
            return member
        provider = self._models.catalogue.chain(Role.DRAFT, member.model or None)[0].provider
        chosen = self._settings.formats.get(provider) or DEFAULT_FORMATS.get(provider, "tags")
        return member.model_copy(update={"format": chosen})

    def _answering_member(self, thread: Thread, text: str, to: str | None, author: Contributor) -> Member | None:
        names = self._names(thread)
        if to == "":
            return None
        if to is not None:
            for member in thread.members:
                if to in (member.bot, names[member.bot]) or to.lower() == names[member.bot].lower():
                    return member
            requested = next((character.name for character in self._characters.all() if character.id == to), to)
            raise NoSuchCharacter(f"{requested} is not in this thread.", f"Here are: {', '.join(names.values())}.")
        others = [person.name for person in self._people.all() if person.id != author.id]
        alone = self._participants(thread.room) <= {author.id}
        return addressed_member(thread.members, names, text, others=others, alone=alone)

    def _person_name(self, person: str) -> str:
        try:
            return " ".join(self._people.person(person).name.split()) or "Somebody"
        except NoSuchPerson:
            return "Somebody"

    def _names(self, thread: Thread) -> dict[str, str]:
        return {member.bot: self._characters.get(member.bot).name for member in thread.members}

    def _participants(self, room: str) -> set[str]:
        """The people who have written in the thread."""
        return {turn.speaker for turn in self._timeline.latest(room, 10_000) if turn.by_person}

    def _find_started(self, room: str, key: str) -> StartedReply | None:
        turn = self._store.reader.turn_by_key(key)
        if turn is None:
            return None
        replies = [one for one in self._timeline.latest(room, _HISTORY_TURNS) if one.answers == turn]
        return StartedReply(turn, replies[0].id, replies[0].speaker) if replies else StartedReply(turn)


def addressed_member(
    members: Sequence[Member], names: Mapping[str, str], text: str, *, others: Sequence[str], alone: bool
) -> Member | None:
    """The member that answers a message: the first one named in it, else the first one of the thread, else None.

    People can talk to each other: a message to one of the `others` (`@Ben …`, `Ben, …`, `Ben: …`) is answered by no
    character, and among several people, only a question is. `alone`: nobody but the author wrote in the thread.
    """
    named = [
        (match.start(), number)
        for number, member in enumerate(members)
        if (match := re.search(rf"(?<!\w){re.escape(names[member.bot])}(?!\w)", text, re.IGNORECASE))
    ]
    if named:
        return members[min(named)[1]]
    to_person = any(
        re.search(rf"@{re.escape(name)}(?!\w)|^\s*{re.escape(name)}\s*[,:]", text, re.IGNORECASE)
        for name in others
        if name.strip() and name != _UNNAMED_OWNER
    )
    return members[0] if not to_person and (alone or re.search("[?？؟]", text)) else None


def can_retry(reply: Turn, turns: Sequence[Turn]) -> bool:
    """Whether it broke off, and no other reply to the same message came after it."""
    later = (turn for turn in turns if turn.answers == reply.answers and turn.seq > reply.seq)
    return reply.state == "truncated" and reply.answers is not None and not any(later)


def _counts_in_prompt(turn: Turn, question: str) -> bool:
    """Without earlier replies to the question, which are being retried, and replies that failed with no text."""
    return turn.by_person or (turn.answers != question and bool(turn.text.strip()))


def _failed(reply: str, error: Exception) -> AssistantTurn:
    why = f"Something unexpected went wrong ({type(error).__name__}). Retry, or look at the log of the server."
    if isinstance(error, CoterieError):
        why = redact(str(error))
    return AssistantTurn(reply=reply, text="", truncated=True, why=why, status=status_of(error))


def _quoted_original(text: str) -> str:
    """The text between the first tags `<original>` and `</original>`; empty if there are none."""
    start = text.find("<original>")
    end = text.find("</original>", start) if start >= 0 else -1
    return text[start + len("<original>") : end].removeprefix("\n").removesuffix("\n") if end >= 0 else ""


def _finish_job(room: str, reply: str) -> NewJob:
    return NewJob(FINISH_REPLY_JOB, key=f"{FINISH_REPLY_JOB}:{reply}", payload={"room": room, "reply": reply})


def _anchor_selection(version: DocumentVersion, span: Span, exact: str = "") -> AnchorData:
    """Anchor a selection. `exact` is the selected text: edits before it may have moved it since."""
    if exact and version.text[span.start : span.end] != exact:
        near = version.text.find(exact, max(0, span.start - CONTEXT_LENGTH))
        start = near if near >= 0 else version.text.find(exact)
        span = Span(start, start + len(exact))
    if not 0 <= span.start < span.end <= len(version.text):
        raise PositionUnknown("The selection is not in the document.", "Select it again.")
    return AnchorData.of(anchor_at(version.text, span))


_MAX_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class Notification:
    person: str
    message: str
    kind: NoticeKind
    room: str
    read: bool

    @property
    def low_priority(self) -> bool:
        """Whether it can wait for a digest."""
        return self.kind == WATCHED_DOCUMENT


class Notifications:
    """Notifications of new messages: each message once per person, never to its author."""

    def __init__(self, store: Store, queries: ThreadQueries, timeline: TurnQueries, characters: Characters) -> None:
        self._store = store
        self._queries = queries
        self._timeline = timeline
        self._characters = characters
        self._people = PeopleQueries(store)

    def of_person(self, person: str, *, unread: bool = False) -> list[Notification]:
        """A person's notifications, newest first."""
        rows = self._store.query(
            "SELECT person, message, kind, room, read FROM draft_notice WHERE person = ?1 AND (NOT ?2 OR NOT read)"
            " ORDER BY seq DESC",
            (person, unread),
        )
        return [Notification(who, message, kind, room, bool(read)) for who, message, kind, room, read in rows]

    def watchers(self, workspace: str, document: str) -> set[str]:
        rows = self._store.query(
            "SELECT person FROM draft_watch WHERE workspace = ? AND document = ?", (workspace, document)
        )
        return {person for (person,) in rows}

    def describe(self, event: AnyEvent) -> PersonalNotice | None:
        """The notice for a person's messengers."""
        notice = event.payload
        if not isinstance(notice, NoticeGiven):
            return None
        thread, turn = self._queries.thread(event.stream), self._timeline.turn(event.stream, notice.message)
        if notice.notice == WATCHED_DOCUMENT:
            return PersonalNotice(
                notice.person, f"There are new messages about “{thread.document}”, which you watch.", can_wait=True
            )
        author = self._name_of(turn.speaker)
        text = f"{author} answered in “{thread.title}” ({thread.document}):\n{excerpt(turn.text, _MAX_EXCERPT)}"
        return PersonalNotice(notice.person, text)

    def _name_of(self, speaker: str) -> str:
        """Guests with a link are neither people nor characters."""
        try:
            return self._people.person(speaker).name
        except NoSuchPerson:
            pass
        try:
            return self._characters.get(speaker).name
        except NoSuchCharacter:
            return "A guest"

    async def watch(self, workspace: str, document: str, contributor: Contributor, watching: bool = True) -> None:
        """Start or stop notifying a person of all messages about a document."""
        watched = DocumentWatched(person=contributor.id, document=document, watching=watching)
        await self._store.append([NewEvent(f"draft:{workspace}", watched, contributor.id)])

    async def mark_read(self, contributor: Contributor) -> None:
        unread = tuple(notification.message for notification in self.of_person(contributor.id, unread=True))
        if unread:
            read = NoticesRead(person=contributor.id, messages=unread)
            await self._store.append([NewEvent(f"inbox:{contributor.id}", read)])

    def events_for(self, thread: Thread, message: str, author: str, participants: Iterable[str]) -> list[NewEvent]:
        """The events that notify of a new message: participants of the thread, and who watches the document."""
        in_thread = set(participants) - {author}
        watching = self.watchers(thread.workspace, thread.document) - in_thread - {author}
        recipients = [(person, OWN_THREAD) for person in sorted(in_thread)]
        recipients += [(person, WATCHED_DOCUMENT) for person in sorted(watching)]
        return [
            NewEvent(
                thread.room,
                NoticeGiven(person=person, notice=kind, message=message),
                author,
                key=f"notice:{person}:{message}",
            )
            for person, kind in recipients
        ]
