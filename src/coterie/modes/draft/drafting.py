"""Writing documents together with characters: all that can be done, in one place. F1–F13"""

from __future__ import annotations

import asyncio

from coterie.kernel import Draft
from coterie.modes.draft.deciding import Deciding
from coterie.modes.draft.events import DocumentWatched, NoticesRead
from coterie.modes.draft.people import Person
from coterie.modes.draft.talking import Talking
from coterie.modes.draft.workspace import Version, checked_path


class Drafting(Talking, Deciding):
    async def create(
        self, workspace: str, document: str, text: str, person: Person, branch: str | None = None
    ) -> Version:
        """A new document, committed at once."""
        chosen = branch or self.workspace(workspace).main_branch
        return await self.save(workspace, checked_path(document), chosen, text, "", person)

    async def create_branch(self, workspace: str, name: str, source: str) -> None:
        await asyncio.to_thread(self.committer(workspace).create_branch, name, source)

    async def merge(self, workspace: str, source: str, target: str, person: Person) -> str:
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
            for document in typed | {thread.document for thread in self.threads.threads(workspace, branch=target)}:
                await self._sync(workspace, target, document)
        return commit

    async def watch(self, workspace: str, document: str, person: Person, watching: bool = True) -> None:
        told = DocumentWatched(person=person.id, document=document, watching=watching)
        await self._store.append([Draft(f"draft:{workspace}", told, person.id)])

    async def mark_read(self, person: Person) -> None:
        unread = tuple(notice.message for notice in self.inbox.of(person.id, unread=True))
        if unread:
            await self._store.append([Draft(f"inbox:{person.id}", NoticesRead(person=person.id, messages=unread))])
