"""The commands of a story: what a person can do in a chat.

Commands decide and events record what was decided, so that a replay never calls a model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count, islice

from coterie.base.clock import Clock
from coterie.base.redaction import redact
from coterie.characters import (
    OWNER,
    Character,
    Characters,
    NoSuchCharacter,
    PersonaQueries,
    PictureFiles,
    PromptTexts,
    Workspaces,
)
from coterie.conversation import AssistantTurn, Busy, SearchHit, search_messages
from coterie.eventstore import AnyEvent, Handler, NewEvent, Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.modes.story.analysis.turn_analysis import PostTurnJobs
from coterie.modes.story.chat_context import ChatContext, Decision
from coterie.modes.story.edits import ChatDetails, Edits, FieldEdit
from coterie.modes.story.events import ChatPersonaChosen, GuestJoined, GuestLeft, PersonJoined, PersonLeft
from coterie.modes.story.history.fork import Fork, ForkRelationships
from coterie.modes.story.history.reset import CharacterResets
from coterie.modes.story.history.rewind import ChatRewindImpact, Rewind
from coterie.modes.story.history.turn_changes import TurnChanges
from coterie.modes.story.jobs import (
    DIALOGUE_SUMMARY_JOB,
    SCENE_CLOSE_JOB,
    SCENE_REWORK_JOB,
    DialogueSummariser,
    SceneCloser,
)
from coterie.modes.story.library.chat_list import ChatList
from coterie.modes.story.opening import ChatOpenings, Opening, OpeningProposal
from coterie.modes.story.pictures import MessagePictures
from coterie.modes.story.prompts import StoryPromptBuilder
from coterie.modes.story.queries import Bookmarks, Chat, ChatSearchHit
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turns import Alternatives, StartedTurn, Turns

_SEARCH_BATCH = 200


class StoryService:
    def __init__(
        self,
        store: Store,
        characters: Characters,
        memory: Memory,
        models: Models,
        settings: StorySettings,
        clock: Clock,
        before_rewind: Callable[[], Awaitable[object]] | None = None,
        workspaces: Workspaces | None = None,
        pictures: PictureFiles | None = None,
    ) -> None:
        """`before_rewind` is awaited before a rewind or a reset; it writes a snapshot file."""
        self.context = context = ChatContext(store, characters, before_rewind)
        self.chats = context.chats
        self.timeline = context.timeline
        self.relationships = context.relationships
        self.participants = context.participants
        self.replies = context.replies

        def prompts(character: str) -> PromptTexts:
            return workspaces.prompts(character) if workspaces is not None else PromptTexts()

        self.pictures = MessagePictures(store, models, pictures, workspaces)
        self.prompts = StoryPromptBuilder(
            store, characters, memory, models, settings, clock, context.participants, self.pictures, workspaces
        )
        self.choices = self.prompts.choices
        self._store = store
        self.bookmarks = Bookmarks(store)
        self._personas = PersonaQueries(store)
        self._jobs = PostTurnJobs(store, models, memory, context.participants, self.pictures, settings, prompts)
        self._scenes = SceneCloser(store, characters, models, memory, context.participants, prompts)
        self._summaries = DialogueSummariser(store, models, context.participants, prompts)
        self._openings = ChatOpenings(context, models, clock)
        self._resets = CharacterResets(context)
        relationships = ForkRelationships(context)
        self.changes = TurnChanges(context, self._jobs, self._scenes, settings.ooc_marker)
        self._rewind = Rewind(context, relationships, self._resets, self.changes)
        self._fork = Fork(context, relationships, self._resets, self.changes)
        self._edits = Edits(context, memory, self.pictures)
        self.chat_list = ChatList(context, self._fork, self._resets, Alternatives(store))
        self.turns = Turns(
            context,
            models,
            settings,
            self.prompts,
            self.pictures,
            self._openings,
            relationships,
            self._resets,
            self._jobs,
            self._summaries,
            self.changes,
        )

    @property
    def ooc_marker(self) -> str:
        """What begins a note that no character sees."""
        return self.turns.settings.ooc_marker

    def handlers(self) -> dict[str, Handler]:
        return {
            **self._jobs.handlers(),
            SCENE_CLOSE_JOB: self._scenes.run_job,
            SCENE_REWORK_JOB: self._scenes.run_rework,
            DIALOGUE_SUMMARY_JOB: self._summaries.run_job,
        }

    async def recover(self) -> int:
        """Close the replies that a crash left open; returns how many."""
        return await self.replies.recover(lambda turn: lambda ended: self._jobs.jobs_after(turn.room, ended))

    # --- beginning a chat --------------------------------------------------------------------------------------

    async def propose_opening(self, character_id: str, person: str = OWNER) -> OpeningProposal:
        return await self._openings.propose(character_id, person)

    async def begin(self, character_id: str, opening: Opening) -> Chat:
        return await self._openings.begin(character_id, opening)

    def opening_events(self, room: str, character: Character, opening: Opening, person: str = OWNER) -> list[NewEvent]:
        """Everything a chat begins with, to be appended in one transaction."""
        return self._openings.events(room, character, opening, person)

    # --- turns -------------------------------------------------------------------------------------------------

    async def send_message(
        self,
        room: str,
        text: str,
        *,
        speaker: str | None = None,
        to: Sequence[str] = (),
        key: str | None = None,
        author: str = OWNER,
        reply: bool = True,
        everyone: bool = True,
        pictures: Sequence[str] = (),
    ) -> StartedTurn:
        """Record a message and start the reply, or with `reply=False` only record it.

        `to` whispers, `speaker` chooses who replies, `key` is idempotent. With `everyone=False` one character replies,
        even if all would by the chat's reply order. `pictures` are the ids of stored pictures.
        """
        return await self.turns.send_message(
            room,
            text,
            speaker=speaker,
            to=to,
            key=key,
            author=author,
            reply=reply,
            everyone=everyone,
            pictures=pictures,
        )

    async def continue_reply(self, room: str) -> StartedTurn:
        """Continue the last reply where it ended."""
        return await self.turns.continue_reply(room)

    async def add_reply(self, room: str, speaker: str | None = None) -> StartedTurn:
        """Let a character, by default another one, reply after the last turn."""
        return await self.turns.add_reply(room, speaker)

    async def suggest_message(self, room: str, person: str = OWNER, beginning: str = "") -> str:
        """A draft of what a person could say next; nothing is recorded."""
        return await self.turns.suggest_message(room, person, beginning)

    async def regenerate(self, room: str, *, text: str | None = None, speaker: str | None = None) -> StartedTurn:
        """Start another reply to the last message, which `text` may change."""
        return await self.turns.regenerate(room, text=text, speaker=speaker)

    async def alternatives(self, room: str, turn: str) -> list[AssistantTurn]:
        """Every reply that was given to a message, oldest first, including the chosen one."""
        return await self.turns.alternatives.for_turn(room, turn)

    async def choose(self, room: str, reply: str) -> None:
        """Make another alternative the reply to the last message."""
        await self.turns.choose(room, reply)

    async def stop(self, room: str) -> bool:
        """Stop the reply and keep its text so far. False if there was none."""
        self.chats.chat(room)
        return await self.replies.stop(room)

    # --- participants and scenes -------------------------------------------------------------------------------

    async def add_person(self, room: str, person: str) -> None:
        if person not in self.chats.chat(room).people:
            await self._store.append([NewEvent(room, PersonJoined(person=person), person)])

    async def remove_person(self, room: str, person: str) -> None:
        """Nothing happens to the person whose chat it is."""
        if person in self.chats.chat(room).people[1:]:
            await self._store.append([NewEvent(room, PersonLeft(person=person), person)])

    async def choose_persona(self, room: str, persona: str) -> None:
        """The owner speaks as a persona from here on; an empty id is their profile."""
        chat = self.chats.chat(room)
        if persona != chat.persona:
            chosen = ChatPersonaChosen(persona=self._personas.get(persona).id if persona else "")
            await self._store.append([NewEvent(room, chosen, OWNER)])

    async def invite(self, room: str, character_id: str) -> None:
        """Add a character as a guest."""
        chat, character = self.chats.chat(room), self.context.characters.get(character_id)
        if character.id in chat.characters:
            raise Busy(f"{character.name} is in this chat already.", "Invite another character.")
        joined = GuestJoined(guest=character.id, bot_version=character.version)
        await self._store.append([NewEvent(room, joined, OWNER)])

    async def remove_guest(self, room: str, character_id: str) -> None:
        if character_id not in self.chats.chat(room).guests:
            raise NoSuchCharacter("That character is no guest of this chat.", "Only guests can leave; the host stays.")
        self.context.require_no_open_reply(room)
        await self._store.append([NewEvent(room, GuestLeft(guest=character_id), OWNER)])

    async def close_scene(self, room: str) -> None:
        """End the scene now, and open the next one in the same place."""
        chat = self.chats.chat(room)
        self.context.require_no_open_reply(room)
        last = self.timeline.latest(room, 1)
        new_events = await self._scenes.close(chat, "by hand", last[0] if last else None, by_hand=True)

        async def decide() -> Decision:
            # The summary took a while: the scene may have been closed, or the turn rewound, in the meantime.
            turns = {turn.id for turn in self.timeline.latest(room, 200)}
            unchanged = self.chats.chat(room).scene == chat.scene and (not last or last[0].id in turns)
            return new_events if unchanged else (), ()

        await self.context.decide_and_append(room, decide)

    # --- changing turns ----------------------------------------------------------------------------------------

    async def edit_turn(self, room: str, turn: str, text: str) -> str:
        """Change the text of any turn; returns the id under which it now is."""
        return await self.changes.edit(room, turn, text)

    async def turn_versions(self, room: str, turn: str) -> list[str]:
        """The texts that a turn had, oldest first; the last one is its text now."""
        return await self.changes.versions(room, turn)

    def turns_between(self, room: str, first: str, last: str | None = None) -> list[str]:
        """The ids of the turns from one to another, in order; only the first one without another."""
        ends = sorted(self.timeline.turn(room, one).seq for one in (first, last or first))
        return [turn.id for turn in self.timeline.between(room, *ends)]

    async def bookmark(self, room: str, turn: str, bookmarked: bool = True, name: str = "") -> None:
        """Bookmark a turn, or remove its bookmark."""
        await self.bookmarks.set(self.timeline.turn(room, turn).id, bookmarked, redact(name.strip()))

    async def delete_turns(self, room: str, turns: Sequence[str]) -> list[str]:
        """Delete turns, wherever they stand; returns the ids of those that were there."""
        return await self.changes.delete(room, turns)

    async def restore_turns(self, room: str, turns: Sequence[str]) -> list[str]:
        """Bring deleted turns back; returns their ids."""
        return await self.changes.restore(room, turns)

    async def hide_turns(self, room: str, turns: Sequence[str], hidden: bool = True) -> list[str]:
        """Leave turns out of prompts and memories, or let them count again; returns the ids of those that changed."""
        return await self.changes.set_hidden(room, turns, hidden)

    async def analyse_again(self, room: str, turn: str) -> None:
        """Ask the model again what an exchange changed in memories and relationships."""
        await self.changes.analyse_again(room, turn)

    # --- history -----------------------------------------------------------------------------------------------

    async def preview_rewind(self, room: str, turn: str) -> ChatRewindImpact:
        """What a rewind to a turn would take back."""
        return await self._rewind.preview(room, turn)

    async def rewind(self, room: str, turn: str) -> AnyEvent:
        """Back to the state right after a turn."""
        return await self._rewind.rewind(room, turn)

    async def undo_rewind(self, room: str) -> AnyEvent:
        """Undo the last rewind or reset; not possible once something new was said."""
        return await self._rewind.undo(room)

    async def turn_before_rewind(self, room: str) -> str | None:
        """The last turn before the last rewind, at which a fork brings back what was rewound; None without one."""
        return await self._rewind.turn_before(room)

    async def fork(self, room: str, turn: str, title: str | None = None) -> Chat:
        """A new chat that shares the past up to a turn."""
        return await self._fork.fork(room, turn, title)

    async def reset(self, character_id: str, confirm: str) -> None:
        """Clear what a character experienced; `confirm` repeats its name."""
        await self._resets.reset(character_id, confirm)

    async def undo_reset(self, character_id: str) -> None:
        """Undo the last reset of a character, in all chats; not possible once one of them began again."""
        await self._resets.undo(character_id)

    async def can_undo_reset(self, character_id: str) -> bool:
        return await self._resets.undoable(character_id) is not None

    async def emptied_by_reset(self, room: str) -> str:
        """The character whose reset emptied a chat; empty if the chat has turns, or never was."""
        return await self._resets.emptied(room)

    async def restart(self, room: str) -> Chat:
        """Begin a chat that a reset emptied again, with its opening."""
        async with self.context.lock(room):
            return await self._openings.restart_after_reset(room)

    # --- details and search ------------------------------------------------------------------------------------

    def details(self, room: str) -> ChatDetails:
        """The scene, activities, relationships and memories of a chat."""
        return self._edits.details(room)

    async def edit(self, room: str, edits: Sequence[FieldEdit]) -> bool:
        """Apply all of these edits to the details, or none. False if every field has its value already."""
        return await self._edits.edit(room, edits)

    async def pin(self, room: str, memory_id: str, pinned: bool) -> bool:
        return await self._edits.pin(room, memory_id, pinned)

    async def forget(self, room: str, memory_id: str) -> None:
        await self._edits.forget(room, memory_id)

    def search(self, query: str, *, room: str | None = None, limit: int = 50, offset: int = 0) -> list[ChatSearchHit]:
        """Turns that contain every word of the query, best match first; rooms of other modes are left out.

        Over all chats, a turn that forks have in common is found once, and archived chats are left out.
        """
        hits: list[ChatSearchHit] = []
        for match in islice(self._distinct_matches(query, room), offset, offset + limit):
            chat, turn = self.chats.chat(match.room), self.timeline.turn(match.room, match.turn)
            hits.append(
                ChatSearchHit(
                    chat=chat.id,
                    title=chat.title,
                    turn=turn.id,
                    seq=turn.seq,
                    name=self.participants.turn_name(chat, self.participants.names(chat), turn),
                    by_person=turn.by_person,
                    at=turn.shown_at,
                    snippet=match.snippet,
                )
            )
        return hits

    def _distinct_matches(self, query: str, room: str | None) -> Iterator[SearchHit]:
        found: set[str] = set()
        archived = self.chat_list.archived() if room is None else ()
        for start in count(0, _SEARCH_BATCH):
            batch = search_messages(self._store, query, room=room, limit=_SEARCH_BATCH, offset=start)
            for match in batch:
                if match.turn not in found and match.room not in archived and self.chats.exists(match.room):
                    found.add(match.turn)
                    yield match
            if len(batch) < _SEARCH_BATCH:
                return
