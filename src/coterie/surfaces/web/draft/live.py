"""Live updates of a document's page: which parts to load again, and the text of running replies.

The channel of a document is `draft:WORKSPACE:BRANCH:PATH`. An update only names the parts that changed, so receiving
one twice or late does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote, unquote

from coterie.base.supervisor import run_once
from coterie.conversation import AssistantTurn, AssistantTurnStarted, Feed, UserTurn
from coterie.eventstore import AnyEvent, Store, WhenSlow, subject_token
from coterie.modes.draft import DraftService, NoSuchDocument, Thread, parse_reply, visible_text
from coterie.surfaces.web.shared.prose import render_block, split_blocks
from coterie.surfaces.web.story.live import LiveUpdate, can_resume

PREFIX = "draft:"
_TALK = (UserTurn, AssistantTurnStarted, AssistantTurn)
_TALK_KINDS = ("thread_noted", "selection_quoted")
_TOGETHER_S = 0.05


def channel_name(workspace: str, branch: str, path: str) -> str:
    return PREFIX + ":".join(quote(part, safe="") for part in (workspace, branch, path))


def document_of_channel(channel: str) -> tuple[str, str, str]:
    """Workspace, document and branch of a channel."""
    parts = [unquote(part) for part in channel.removeprefix(PREFIX).split(":")]
    if not channel.startswith(PREFIX) or len(parts) != 3:
        raise NoSuchDocument("This page follows no document.", "Reload it.")
    workspace, branch, document = parts
    return workspace, document, branch


class DocumentUpdates:
    def __init__(self, store: Store, draft: DraftService, feed: Feed, followed: str, after: int) -> None:
        self._store = store
        self._draft = draft
        self._feed = feed
        self._workspace, self._path, self._branch = document_of_channel(followed)
        self._after = after
        self._sheet = -1
        self._spoken: dict[str, tuple[str, str, int]] = {}
        """By thread: the running reply, its text when last sent, and how many blocks are finished."""

    async def updates(self) -> AsyncIterator[LiveUpdate]:
        changed = asyncio.Event()
        async with AsyncExitStack() as stack:
            for subject in ("event.>", "live.>", f"live_document.{subject_token(self._workspace)}"):
                source = self._store.bus.subscribe(subject, limit=1, when_slow=WhenSlow.DROP_OLDEST)
                listener = run_once(
                    "live updates of a document", _hear(await stack.enter_async_context(source), changed)
                )
                stack.callback(listener.cancel)
            everything = not can_resume(self._feed, self._after)
            if everything:
                self._after = self._feed.last_id()
            yield LiveUpdate("document", {"sidebar": True, "threads": ["*"], "document": True}, self._after)
            while True:
                parts = self._changed()
                for words in self._words():
                    yield LiveUpdate("words", words, self._after)
                if parts:
                    yield LiveUpdate("document", parts, self._after)
                await changed.wait()
                changed.clear()
                # Send what comes in quick succession together.
                await asyncio.sleep(_TOGETHER_S)

    def _changed(self) -> dict[str, Any]:
        """The parts of the page that events since the last call have changed."""
        parts: dict[str, Any] = {}
        threads: set[str] = set()
        while page := self._store.reader.read(after=self._after, limit=200):
            self._after = page[-1].id
            rooms = {one.room for one in self._threads()}
            for event in page:
                if event.stream == f"draft:{self._workspace}" or event.stream in rooms:
                    self._sort(event, parts, threads)
        if threads:
            parts["threads"] = sorted(threads)
        revision = self._draft.documents.live.revision(self._workspace, self._path, self._branch)
        if revision != self._sheet:
            self._sheet = revision
            parts["document"] = True
        return parts

    def _sort(self, event: AnyEvent, parts: dict[str, Any], threads: set[str]) -> None:
        if event.kind == "notice_given":
            parts["notifications"] = True
        elif isinstance(event.payload, _TALK) or event.kind in _TALK_KINDS:
            threads.add(event.stream.partition(":")[2])
        else:
            parts["sidebar"] = True
        if isinstance(event.payload, AssistantTurn):
            parts["sidebar"] = True

    def _words(self) -> list[dict[str, Any]]:
        draft = self._draft
        messages: list[dict[str, Any]] = []
        for thread in self._threads():
            partial = draft.replies.partial(thread.room)
            if partial is None:
                continue
            reply, before, finished = self._spoken.get(thread.room, ("", "", 0))
            if reply != partial.reply:
                before, finished = "", 0
            if before == partial.text:
                continue
            speaker = draft.timeline.turn(thread.room, partial.reply).speaker
            pieces = parse_reply(partial.text, thread.member(speaker).format, complete=False)
            parts = split_blocks(visible_text(pieces))
            self._spoken[thread.room] = (partial.reply, partial.text, max(finished, len(parts) - 1))
            update = {"thread": thread.id, "reply": partial.reply, "from": finished}
            messages.append({**update, "blocks": [render_block(part) for part in parts[finished:]]})
        return messages

    def _threads(self) -> list[Thread]:
        return self._draft.thread_queries.threads(self._workspace, self._path, self._branch)


async def _hear(source: AsyncIterator[Any], changed: asyncio.Event) -> None:
    async for _ in source:
        changed.set()
