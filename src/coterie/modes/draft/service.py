"""The draft mode's commands and queries, composed of collaborators."""

from __future__ import annotations

from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.supervisor import Supervisor
from coterie.characters import Characters
from coterie.conversation import Feed, Replies, TurnQueries
from coterie.eventstore import Handler, Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.modes.draft.documents import Documents, GitWorkspaces, LocalFiles
from coterie.modes.draft.prompts import ThreadMemory
from coterie.modes.draft.proposals import Proposals
from coterie.modes.draft.queries import ProposalQueries, ThreadQueries
from coterie.modes.draft.settings import DraftSettings
from coterie.modes.draft.sharing import Sharing
from coterie.modes.draft.threads import Notifications, Threads


class DraftService:
    """Write documents together with characters."""

    def __init__(
        self,
        store: Store,
        characters: Characters,
        memory: Memory,
        models: Models,
        settings: DraftSettings,
        clock: Clock,
        folder: Path,
        supervisor: Supervisor | None = None,
    ) -> None:
        """New workspaces are created in `folder`."""
        self.thread_queries = ThreadQueries(store)
        self.proposal_queries = ProposalQueries(store)
        self.notifications = Notifications(store)
        self.timeline = TurnQueries(store)
        self.replies = Replies(store)
        self.feed = Feed(store, self.replies)
        self.sharing = Sharing(store, clock)
        self.memory = ThreadMemory(store, memory, self.sharing.readers)
        self.workspaces = GitWorkspaces(store, self.thread_queries, clock, folder)
        self.documents = Documents(
            store, self.workspaces, self.thread_queries, self.proposal_queries, supervisor or Supervisor(clock)
        )
        self.local_files = LocalFiles(self.documents)
        self.proposals = Proposals(store, characters, self.documents, self.thread_queries, self.proposal_queries)
        self.threads = Threads(
            store,
            characters,
            models,
            settings,
            self.documents,
            self.thread_queries,
            self.proposal_queries,
            self.notifications,
            self.memory,
            self.timeline,
            self.replies,
        )

    def handlers(self) -> dict[str, Handler]:
        """The handlers of this mode's jobs, by kind."""
        return self.threads.handlers()

    async def recover(self) -> int:
        """Close the replies that a crash left open; returns how many."""
        return await self.threads.recover()

    async def close(self) -> None:
        """Stop the replies and commit typed text."""
        await self.replies.close()
        await self.documents.live.close()
