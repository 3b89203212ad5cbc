"""Talking about a document: threads, messages, replies that propose. F2, F4–F6, F12, F13

A message is durable before a model is asked. Its reply streams; each proposal becomes a row as its block closes. What
is left when it ended, whole or not, is one job: blocks that a crash kept from becoming rows, blocks that could not be
read, a better quote for what was not found, and who is to be told.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.base.errors import BadPoint
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.characters.errors import NoSuchCharacter
from coterie.conversation.errors import Busy
from coterie.conversation.events import AssistantTurnStarted, Segment, UserTurn
from coterie.conversation.turns import Turn
from coterie.eventstore import Job, NewEvent, NewJob
from coterie.eventstore.worker import Handler, JobResult
from coterie.llm.errors import ModelError
from coterie.llm.roles import Role
from coterie.llm.router import Caller
from coterie.modes.draft.diff import Span, edits_between
from coterie.modes.draft.documents import Documents
from coterie.modes.draft.edit_formats import DEFAULT_FORMATS, BrokenBlock, EditBlock, parse_reply, parser_for
from coterie.modes.draft.errors import NoSuchDocument, Unplaced
from coterie.modes.draft.events import (
    AnchorData,
    ChangeRepaired,
    Member,
    SelectionQuoted,
    ThreadKind,
    ThreadNoted,
    ThreadOpened,
)
from coterie.modes.draft.git.repository import Contributor, DocumentVersion
from coterie.modes.draft.locate.anchors import CONTEXT_LENGTH, Anchor, anchor_at, move_anchors, relocate
from coterie.modes.draft.projections import Proposal, Thread
from coterie.modes.draft.prompts import quote_repair_prompt, thread_prompt
from coterie.modes.draft.proposals import locate_edit, proposal_event, proposal_id
from coterie.modes.draft.replies import ReplyWithProposals

FINISH_REPLY_JOB = "draft_settle"
_MOST_TURNS = 60
_ASKED_WITH = 2
"""So many of the last messages say what it is about."""
_QUOTED = re.compile(r"<original>\n?(.*?)\n?</original>", re.DOTALL)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn that has begun: the message is durable, and the reply is on its way."""

    turn: str
    reply: str
    speaker: str


class Threads(Documents):
    def handlers(self) -> dict[str, Handler]:
        return {FINISH_REPLY_JOB: self._settle}

    async def recover(self) -> int:
        """Replies that a crash left open are closed, and what they proposed until then is kept."""
        return await self.replies.recover(
            lambda turn: lambda _: self._jobs_after(turn.room, turn.id),
            lambda turn: self.thread_queries.is_thread(turn.room),
        )

    async def open_thread(
        self,
        workspace: str,
        document: str,
        members: Sequence[Member],
        person: Contributor,
        *,
        branch: str | None = None,
        title: str = "",
        selection: Span | None = None,
        exact: str = "",
        against: str = "",
    ) -> Thread:
        """Beside a document, or about a stretch of it; with `against`, a review of one branch beside another."""
        version = await self.read(workspace, document, branch)
        for member in members:
            self._roster.get(member.bot)
        if not members:
            raise NoSuchCharacter("Nobody is in the thread to answer.", "Choose a character for it.")
        kind: ThreadKind = "review" if against else "anchored" if selection is not None else "discussion"
        place = self._place(version, selection, exact) if selection is not None else None
        opened = ThreadOpened(
            workspace=workspace,
            document=document,
            branch=version.branch,
            thread_kind=kind,
            title=title.strip() or version.title,
            members=tuple(map(self._resolved, members)),
            place=place,
            blob=version.blob,
            against=against,
        )
        room = f"room:{new_id()}"
        await self._store.append([NewEvent(room, opened, person.id)])
        return self.thread_queries.thread(room)

    async def send_message(
        self,
        room: str,
        text: str,
        person: Contributor,
        *,
        to: str | None = None,
        selection: Span | None = None,
        exact: str = "",
        key: str | None = None,
    ) -> StartedTurn:
        """F4: a message and the reply to it, which comes in the background."""
        async with self._alone(room):
            mark = None if key is None else f"say:{room}:{key}"
            if mark is not None and (before := self._said_before(room, mark)) is not None:
                return before
            thread = self.thread_queries.thread(room)
            if self.timeline.open_replies(room):
                raise Busy("Somebody is still writing in this thread.", "Wait for the reply, or stop it.")
            if not text.strip():
                raise BadPoint("There is nothing in the message.", "Write something, then send it.")
            member = self._addressed(thread, text, to)
            version = await self.read(thread.workspace, thread.document, thread.branch)
            turn = new_id()
            segment = Segment(kind="dialogue", text=text)
            said = UserTurn(turn=turn, author=person.id, text=text, segments=(segment,))
            drafts = [NewEvent(room, said, person.id, key=mark, turn=turn)]
            if selection is not None:
                quoted = SelectionQuoted(turn=turn, place=self._place(version, selection, exact), blob=version.blob)
                drafts.append(NewEvent(room, quoted, person.id, turn=turn))
            drafts += self.notification_queries.events_for(thread, turn, person.id, self._people(room))
            await self._store.append(drafts)
            return await self._answer(thread, member, version, turn)

    async def stop_reply(self, room: str) -> bool:
        self.thread_queries.thread(room)
        return await self.replies.stop(room)

    def current_anchor(self, thread: Thread, version: DocumentVersion) -> Anchor | None:
        """F3: where an anchored thread's words stand now; None if it has none, or is orphaned."""
        return self._about(thread, version, thread.place, thread.blob)

    def anchor_in(self, thread: Thread, text: str, blob: str) -> Anchor | None:
        """The same in a text that is at hand."""
        return self.current_anchor(thread, DocumentVersion(thread.document, thread.branch, "", blob, text))

    # --- a reply -------------------------------------------------------------------------------------------------

    async def _answer(self, thread: Thread, member: Member, version: DocumentVersion, turn: str) -> StartedTurn:
        reply = new_id()
        started = AssistantTurnStarted(reply=reply, speaker=member.bot, answers=turn)
        await self._store.append([NewEvent(thread.room, started, member.bot, turn=reply)])
        bot = self._roster.get(member.bot)
        turns = [one for one in self.timeline.latest(thread.room, _MOST_TURNS) if one.id != reply]
        quotes = {
            one.id: place for one in turns if (place := self.thread_queries.quote(thread.room, one.id)) is not None
        }
        declined = [one for one in self.proposal_queries.of_thread(thread.room) if one.state == "declined"]
        asked = " ".join(one.text for one in turns[-_ASKED_WITH:])
        wrote = self._people(thread.room)
        remembered = await asyncio.to_thread(self.thread_memory.recall, thread, bot.id, wrote, asked)
        task = member.model or None
        target = self._models.catalogue.chain(Role.DRAFT, task)[0]
        prompt = thread_prompt(
            bot,
            member,
            remembered,
            version,
            turns,
            self._names(thread),
            quotes,
            declined,
            self._settings,
            self._models.tokens.counter(target),
            self._models.context_window(Role.DRAFT, task),
        )
        stream = self._models.stream(Role.DRAFT, prompt, caller=Caller(thread.room, member.bot), task=task)

        async def on_block(number: int, block: EditBlock) -> None:
            await self._propose(thread, member.bot, turn, reply, number, block)

        proposing = ReplyWithProposals(stream, parser_for(member.format), on_block)
        await self.replies.start(
            thread.room, reply, proposing, member.bot, lambda _: self._jobs_after(thread.room, reply)
        )
        return StartedTurn(turn, reply, member.bot)

    async def _propose(self, thread: Thread, author: str, turn: str, reply: str, number: int, block: EditBlock) -> None:
        version = await self.read(thread.workspace, thread.document, thread.branch)
        selected = self.thread_queries.selection(thread.room, turn)
        about = self._about(thread, version, *(selected or (thread.place, thread.blob)))
        told = await asyncio.to_thread(proposal_event, thread, reply, number, author, block, version, about)
        draft = NewEvent(thread.room, told, author, key=f"change:{told.change}", turn=reply)
        await self._store.append([draft])

    def _jobs_after(self, room: str, reply: str) -> list[NewJob]:
        return [NewJob(FINISH_REPLY_JOB, key=f"{FINISH_REPLY_JOB}:{reply}", payload={"room": room, "reply": reply})]

    async def _settle(self, job: Job) -> JobResult:
        """All that a reply leaves to be done, in a way that may be repeated."""
        room, reply = str(job.payload["room"]), str(job.payload["reply"])
        thread = self.thread_queries.thread(room)
        turn = self.timeline.turn(room, reply)
        pieces = parse_reply(turn.text, thread.member(turn.speaker).format)
        blocks = [piece for piece in pieces if isinstance(piece, EditBlock)]
        for number, block in enumerate(blocks, start=1):
            if not self.proposal_queries.has(proposal_id(reply, number)):
                await self._propose(thread, turn.speaker, turn.answers or "", reply, number, block)
        for change in self.proposal_queries.of_reply(room, reply):
            if change.state == "pending" and not change.placed and not change.repaired:
                await self._repair(thread, change)
        notes = [_SPOILT[piece.reason] for piece in pieces if isinstance(piece, BrokenBlock)]
        noted = [NewEvent(room, ThreadNoted(text=text, about=reply)) for text in notes]
        return JobResult(
            [*noted, *self.notification_queries.events_for(thread, reply, turn.speaker, self._people(room))]
        )

    async def _repair(self, thread: Thread, change: Proposal) -> None:
        """F6: a quote that is nowhere, or in two places, is asked for once more."""
        version = await self.read(thread.workspace, thread.document, thread.branch)
        task = thread.member(change.author).model or None
        target = self._models.catalogue.chain(Role.DRAFT, task)[0]
        prompt = quote_repair_prompt(
            version,
            change,
            self._settings,
            self._models.tokens.counter(target),
            self._models.context_window(Role.DRAFT, task),
        )
        quote = ""
        try:
            answer = await self._models.ask(Role.DRAFT, prompt, caller=Caller(thread.room, change.author), task=task)
            found = _QUOTED.search(answer.text)
            quote = found.group(1) if found else ""
        except ModelError as error:
            _log.info("no better quote", change=change.id, error=error.what)
        about = self.current_anchor(thread, version)
        where = locate_edit(quote, change.proposed, version, about) if quote.strip() else None
        told = ChangeRepaired(
            change=change.id,
            quote=quote,
            commit=version.commit,
            blob=version.blob,
            place=where.place if where else None,
            how=where.how if where else None,
            score=where.score if where else 1.0,
        )
        await self._store.append([NewEvent(thread.room, told, change.author, key=f"repair:{change.id}")])

    # --- who and where -------------------------------------------------------------------------------------------

    def _about(self, thread: Thread, version: DocumentVersion, place: AnchorData | None, blob: str) -> Anchor | None:
        if place is None:
            return None
        kept = Anchor(place.exact, place.prefix, place.suffix, place.start, place.end, blob)
        if version.text[place.start : place.end] == place.exact:
            return kept
        try:
            old = self.repository(thread.workspace).blob_text(blob)
        except NoSuchDocument:
            old = ""
        (anchor,) = move_anchors([kept], old, version.text, edits_between(old, version.text), version.blob)
        return relocate(anchor, version.text)

    def _place(self, version: DocumentVersion, span: Span, exact: str = "") -> AnchorData:
        """`exact` are the words that were selected: others may have typed before them since."""
        if exact and version.text[span.start : span.end] != exact:
            near = version.text.find(exact, max(0, span.start - CONTEXT_LENGTH))
            start = near if near >= 0 else version.text.find(exact)
            span = Span(start, start + len(exact))
        if not 0 <= span.start < span.end <= len(version.text):
            raise Unplaced("The selection is not in the document.", "Select it again.")
        return AnchorData.of(anchor_at(version.text, span))

    def _resolved(self, member: Member) -> Member:
        """With the format that its provider writes best, where none was asked for."""
        if member.format != "auto":
            return member
        provider = self._models.catalogue.chain(Role.DRAFT, member.model or None)[0].provider
        chosen = self._settings.formats.get(provider) or DEFAULT_FORMATS.get(provider, "tags")
        return member.model_copy(update={"format": chosen})

    def _addressed(self, thread: Thread, text: str, to: str | None) -> Member:
        """Who was asked for, else who is named first in the message, else who answered last, else the first."""
        names = self._names(thread)
        if to is not None:
            for member in thread.members:
                if to in (member.bot, names[member.bot]) or to.lower() == names[member.bot].lower():
                    return member
            asked = next((bot.name for bot in self._roster.all() if bot.id == to), to)
            raise NoSuchCharacter(f"{asked} is not in this thread.", f"Here are: {', '.join(names.values())}.")
        named = [
            (found.start(), number)
            for number, member in enumerate(thread.members)
            if (found := re.search(rf"(?<!\w){re.escape(names[member.bot])}(?!\w)", text, re.IGNORECASE))
        ]
        return thread.members[min(named)[1] if named else 0]

    def _names(self, thread: Thread) -> dict[str, str]:
        return {member.bot: self._roster.get(member.bot).name for member in thread.members}

    def _people(self, room: str) -> set[str]:
        """Everybody who wrote in the thread so far."""
        return {turn.speaker for turn in self.timeline.latest(room, 10_000) if turn.by_person}

    def _said_before(self, room: str, mark: str) -> StartedTurn | None:
        turn = self._store.reader.turn_by_key(mark)
        if turn is None:
            return None
        replies: list[Turn] = [one for one in self.timeline.latest(room, _MOST_TURNS) if one.answers == turn]
        return StartedTurn(turn, replies[0].id, replies[0].speaker) if replies else StartedTurn(turn, "", "")


_SPOILT = {
    "unclosed": "A proposal broke off before its end. It stands in the reply as text.",
    "nested": "A proposal was begun inside another. The outer one stands in the reply as text.",
    "empty": "A proposal changed nothing. It stands in the reply as text.",
    "garbled": "A proposal could not be read. It stands in the reply as text.",
    "too long": "A proposal was too long. It stands in the reply as text.",
}
