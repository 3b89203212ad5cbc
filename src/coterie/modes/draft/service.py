"""The draft mode's commands and queries, composed of collaborators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.supervisor import Supervisor
from coterie.characters import Characters, Workspaces
from coterie.conversation import Feed, Replies, TurnQueries
from coterie.eventstore import AnyEvent, Handler, Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.messaging import PersonalNotice
from coterie.modes.draft.documents import Documents, GitWorkspaces, LocalFiles
from coterie.modes.draft.events import NoticeGiven
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
        character_folders: Workspaces | None = None,
    ) -> None:
        """New workspaces are created in `folder`, which is in the data folder.

        `character_folders` has the prompts of characters.
        """
        self.thread_queries = ThreadQueries(store, folder.parent)
        self.proposal_queries = ProposalQueries(store)
        self.timeline = TurnQueries(store)
        self.notifications = Notifications(store, self.thread_queries, self.timeline, characters)
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
            character_folders,
        )

    @property
    def notices(self) -> dict[str, Callable[[AnyEvent], PersonalNotice | None]]:
        """The notices for people, by the kind of event that leads to them."""
        return {NoticeGiven.kind: self.notifications.describe}

    def handlers(self) -> dict[str, Handler]:
        """The handlers of this mode's jobs, by kind."""
        return self.threads.handlers()

    async def recover(self) -> int:
        """Close the replies that a crash left open; returns how many. Whole paths of own folders become relative."""
        await self.workspaces.store_relative_folders()
        return await self.threads.recover()

    async def close(self) -> None:
        """Stop the replies and commit typed text."""
        await self.replies.close()
        await self.documents.live.close()
