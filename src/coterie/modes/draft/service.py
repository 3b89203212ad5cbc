"""Writing documents together with characters: all that can be done, in one place. F1–F13"""

from __future__ import annotations

import asyncio

from coterie.eventstore import NewEvent
from coterie.modes.draft.events import DocumentWatched, NoticesRead
from coterie.modes.draft.git.repository import Contributor, DocumentVersion, validate_path
from coterie.modes.draft.proposals import Proposals
from coterie.modes.draft.threads import Threads


class DraftService(Threads, Proposals):
    async def create(
        self, workspace: str, document: str, text: str, person: Contributor, branch: str | None = None
    ) -> DocumentVersion:
        """A new document, committed at once."""
        chosen = branch or self.repository(workspace).main_branch
        return await self.save(workspace, validate_path(document), chosen, text, "", person)

    async def create_branch(self, workspace: str, name: str, source: str) -> None:
        await asyncio.to_thread(self.committer(workspace).create_branch, name, source)

    async def merge(self, workspace: str, source: str, target: str, person: Contributor) -> str:
        """F11: one branch into another; every document of the target is then looked at again."""
        committer = self.committer(workspace)
        for of, branch, document in list(self._sheets):
            if (of, branch) == (workspace, source):
                await self.flush(workspace, document, source)
        async with self._alone(f"{workspace}/{target}"):
            typed = {document for of, branch, document in self._sheets if (of, branch) == (workspace, target)}
            for document in typed:
                await self._sync(workspace, target, document)
            commit = await asyncio.to_thread(committer.merge, source, target, person.author, self._clock.now())
            for document in typed | {
                thread.document for thread in self.thread_queries.threads(workspace, branch=target)
            }:
                await self._sync(workspace, target, document)
        return commit

    async def watch(self, workspace: str, document: str, person: Contributor, watching: bool = True) -> None:
        told = DocumentWatched(person=person.id, document=document, watching=watching)
        await self._store.append([NewEvent(f"draft:{workspace}", told, person.id)])

    async def mark_read(self, person: Contributor) -> None:
        unread = tuple(notice.message for notice in self.notification_queries.of_person(person.id, unread=True))
        if unread:
            await self._store.append([NewEvent(f"inbox:{person.id}", NoticesRead(person=person.id, messages=unread))])
