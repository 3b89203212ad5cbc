"""Labels for people: names for ids, and what scores, jobs and failed replies are called on the page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends

from coterie.characters import Characters, NoSuchCharacter, NoSuchPerson, People
from coterie.modes.story import StoryService
from coterie.surfaces.web.shared.dependencies import CharactersDep, PeopleDep, StoryDep
from coterie.surfaces.web.shared.prose import clean_line

_SURFACES = {"openai_api": "API", "api": "API", "mcp": "MCP", "websocket": "WebSocket"}


def surface_label(surface: str) -> str:
    """The name of a messenger or another surface, as people know it."""
    return _SURFACES.get(surface) or clean_line(surface).capitalize()


class DisplayNames:
    """Names of all characters, people and story chats by id."""

    def __init__(self, characters: Characters, people: People, story: StoryService) -> None:
        self.characters = {character.id: clean_line(character.name) for character in characters.all()}
        self.rooms = {chat.room: clean_line(chat.title) for chat in story.chats.chats()}
        self._people = {person.id: clean_line(person.name) for person in people.all()}

    def name(self, who: str) -> str:
        """The name of a person or character; what is no id is taken for a name already."""
        return self._people.get(who) or self.characters.get(who, clean_line(who))

    def room(self, stream: str) -> str:
        """The title of a chat, or the origin of what is stored outside of chats."""
        if stream in self.rooms:
            return self.rooms[stream]
        kind, _, owner = stream.partition(":")
        return f"imported with {self.name(owner)}" if kind == "memory" else "a deleted chat"


async def _display_names(characters: CharactersDep, people: PeopleDep, story: StoryDep) -> DisplayNames:
    return DisplayNames(characters, people, story)


DisplayNamesDep = Annotated[DisplayNames, Depends(_display_names)]


class NameCache:
    """Names of people and characters by id, each looked up once; deleted ones included."""

    def __init__(self, people: People, characters: Characters) -> None:
        self._people = people
        self._characters = characters
        self._known: dict[str, str] = {}

    def __getitem__(self, who: str) -> str:
        if who not in self._known:
            self._known[who] = clean_line(self._name(who)) or "Somebody"
        return self._known[who]

    def _name(self, who: str) -> str:
        try:
            return self._people.person(who).name
        except NoSuchPerson:
            pass
        try:
            return self._characters.get(who).name
        except NoSuchCharacter:
            return "Somebody"


async def _name_cache(people: PeopleDep, characters: CharactersDep) -> NameCache:
    return NameCache(people, characters)


NamesDep = Annotated[NameCache, Depends(_name_cache)]


# Parts of a score, kinds of jobs


_SCORE_PARTS = {
    "words": "matching words",
    "vectors": "similar meaning",
    "maxsim": "words with similar meaning",
    "embedder": "similar meaning (embedder)",
    "neighbours": "said around it",
    "session": "same scene",
    "speaker": "speaker",
    "links": "linked memories",
    "recency": "recency",
    "significance": "significance",
    "pins": "pinned",
    "people": "people named",
    "time": "time",
    "updates": "replaces another",
    "start": "base score",
}


def score_part_label(source: str) -> str:
    """The label of a part of a memory's score."""
    return _SCORE_PARTS.get(source, source.replace("_", " "))


_JOB_KINDS = {
    "backup": "the nightly backup",
    "story_memory": "updating memory, relationships and the scene after a turn",
    "story_close": "ending a scene",
    "story_retell": "summarising older turns",
    "desk_message": "answering at the desk",
    "desk_wake": "reading a worker's result",
    "desk_branch": "a branch at the desk",
    "desk_worker": "a worker at the desk",
    "desk_compact": "summarising a conversation at the desk",
    "desk_tell": "reporting a result from the desk",
    "desk_schedule": "a scheduled task",
}


def job_label(kind: str) -> str:
    """The label of a kind of job."""
    return _JOB_KINDS.get(kind, kind.replace("_", " "))


# Why a reply broke off: what happened, what to do, and the button that helps


_MODELS = ("Settings → Models", "/settings#models")


@dataclass(frozen=True)
class ReplyError:
    code: str
    """For tests and styles: `stopped`, `length`, `restart`, `401`, `429`, `5xx`, `lost`."""
    kind: Literal["info", "warn", "danger"]
    title: str
    text: str = ""
    act: str = "Regenerate"
    link: tuple[str, str] | None = None
    retry_at: int | None = None
    """When trying again may help, in milliseconds since 1970."""


_KNOWN = {
    "stopped": ReplyError("stopped", "info", "You stopped this reply.", "What was said is kept."),
    "length": ReplyError("length", "info", "The reply reached the length limit.", "What was said is kept."),
    "restart": ReplyError("restart", "warn", "Coterie stopped in the middle of this reply.", "What was said is kept."),
}


def reply_error(
    why: str, status: int | None = None, *, has_text: bool = True, retry_at: datetime | None = None
) -> ReplyError:
    """`why` as stored with the reply, `status` the HTTP status of the provider, `has_text` whether any text is kept."""
    error = _reply_error(why, status)
    if not has_text:
        kept = {"lost": "Connection lost before the reply began."}.get(error.code, error.title)
        error = replace(error, title=kept, text="" if why in _KNOWN else error.text)
    return error if retry_at is None else replace(error, retry_at=int(retry_at.timestamp() * 1_000))


def _reply_error(why: str, status: int | None) -> ReplyError:
    if why in _KNOWN:
        return _KNOWN[why]
    status = status or 0
    if status in (401, 403):
        return ReplyError("401", "danger", "The provider refused the key.", why, "Retry", _MODELS)
    if status == 402:
        return ReplyError("402", "danger", "The provider requires payment.", why, "Retry", _MODELS)
    if status == 429:
        return ReplyError("429", "warn", "The provider asks to slow down.", why, "Retry")
    if status >= 500:
        return ReplyError("5xx", "warn", "The provider failed.", why, "Retry")
    if status >= 400:
        return ReplyError("4xx", "danger", "The provider rejected the request.", why, "Retry", _MODELS)
    return ReplyError("lost", "warn", "Connection lost, partial reply saved.", why)
