"""What an open document's page is told: what to look at again, and words of a reply as they are spoken. F4, F9, F12

A page names what it follows `draft:WORKSPACE:BRANCH:PATH`. It is told which of its parts changed and fetches those;
so being told twice, or late, changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote, unquote

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


class DocumentUpdates:
    def __init__(self, store: Store, draft: DraftService, feed: Feed, followed: str, after: int) -> None:
        parts = [unquote(part) for part in followed.removeprefix(PREFIX).split(":")]
        if len(parts) != 3:
            raise NoSuchDocument("This page follows no document.", "Reload it.")
        self._store = store
        self._draft = draft
        self._feed = feed
        self._workspace, self._branch, self._path = parts
        self._after = after
        self._sheet = -1
        self._spoken: dict[str, tuple[str, str, int]] = {}
        """Of each thread the reply that is being given, how it was told last, and its finished blocks."""

    async def updates(self) -> AsyncIterator[LiveUpdate]:
        news = asyncio.Event()
        async with AsyncExitStack() as ears:
            for subject in ("event.>", "live.>", f"live_document.{subject_token(self._workspace)}"):
                source = self._store.bus.subscribe(subject, limit=1, when_slow=WhenSlow.DROP_OLDEST)
                ear = asyncio.create_task(_hear(await ears.enter_async_context(source), news))
                ears.callback(ear.cancel)
            everything = not can_resume(self._feed, self._after)
            if everything:
                self._after = self._feed.last_id()
            yield LiveUpdate("document", {"sidebar": True, "threads": ["*"], "document": True}, self._after)
            while True:
                told = self._changed()
                for words in self._words():
                    yield LiveUpdate("words", words, self._after)
                if told:
                    yield LiveUpdate("document", told, self._after)
                await news.wait()
                news.clear()
                # What comes in quick succession is told together.
                await asyncio.sleep(_TOGETHER_S)

    def _changed(self) -> dict[str, Any]:
        """What happened since, as the parts of the page to look at again."""
        told: dict[str, Any] = {}
        talk: set[str] = set()
        while page := self._store.reader.read(after=self._after, limit=200):
            self._after = page[-1].id
            rooms = {one.room for one in self._threads()}
            for event in page:
                if event.stream == f"draft:{self._workspace}" or event.stream in rooms:
                    self._sort(event, told, talk)
        if talk:
            told["threads"] = sorted(talk)
        sheet = self._draft.documents.live.revision(self._workspace, self._path, self._branch)
        if sheet != self._sheet:
            self._sheet = sheet
            told["document"] = True
        return told

    def _sort(self, event: AnyEvent, told: dict[str, Any], talk: set[str]) -> None:
        if event.kind == "notice_given":
            told["notifications"] = True
        elif isinstance(event.payload, _TALK) or event.kind in _TALK_KINDS:
            talk.add(event.stream.partition(":")[2])
        else:
            told["sidebar"] = True
        if isinstance(event.payload, AssistantTurn):
            told["sidebar"] = True

    def _words(self) -> list[dict[str, Any]]:
        draft = self._draft
        found: list[dict[str, Any]] = []
        for thread in self._threads():
            so_far = draft.replies.partial(thread.room)
            if so_far is None:
                continue
            reply, before, finished = self._spoken.get(thread.room, ("", "", 0))
            if reply != so_far.reply:
                before, finished = "", 0
            if before == so_far.text:
                continue
            speaker = draft.timeline.turn(thread.room, so_far.reply).speaker
            pieces = parse_reply(so_far.text, thread.member(speaker).format, complete=False)
            parts = split_blocks(visible_text(pieces))
            self._spoken[thread.room] = (so_far.reply, so_far.text, max(finished, len(parts) - 1))
            told = {"thread": thread.id, "reply": so_far.reply, "from": finished}
            found.append({**told, "blocks": [render_block(part) for part in parts[finished:]]})
        return found

    def _threads(self) -> list[Thread]:
        return self._draft.thread_queries.threads(self._workspace, self._path, self._branch)


async def _hear(source: AsyncIterator[Any], news: asyncio.Event) -> None:
    async for _ in source:
        news.set()
