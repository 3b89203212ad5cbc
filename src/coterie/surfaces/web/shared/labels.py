"""Labels for people: names for ids, and what scores, jobs and failed replies are called on the page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends

from coterie.characters import Characters, NoSuchCharacter, NoSuchPerson, People
from coterie.modes.story import StoryService
from coterie.surfaces.web.shared.dependencies import CharactersDep, PeopleDep, StoryDep
from coterie.surfaces.web.shared.messages import N_, gettext
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
        return (
            gettext("imported with %(name)s", name=self.name(owner)) if kind == "memory" else gettext("a deleted chat")
        )


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
            self._known[who] = clean_line(self._name(who)) or gettext("Somebody")
        return self._known[who]

    def _name(self, who: str) -> str:
        try:
            return self._people.person(who).name
        except NoSuchPerson:
            pass
        try:
            return self._characters.get(who).name
        except NoSuchCharacter:
            return gettext("Somebody")


async def _name_cache(people: PeopleDep, characters: CharactersDep) -> NameCache:
    return NameCache(people, characters)


NamesDep = Annotated[NameCache, Depends(_name_cache)]


# Parts of a score, kinds of jobs


_SCORE_PARTS = {
    "words": N_("matching words"),
    "vectors": N_("similar meaning"),
    "maxsim": N_("words with similar meaning"),
    "embedder": N_("similar meaning (embedder)"),
    "neighbours": N_("said around it"),
    "session": N_("same scene"),
    "speaker": N_("speaker"),
    "links": N_("linked memories"),
    "recency": N_("recency"),
    "significance": N_("significance"),
    "pins": N_("pinned"),
    "people": N_("people named"),
    "time": N_("time"),
    "updates": N_("replaces another"),
    "start": N_("base score"),
}


def score_part_label(source: str) -> str:
    """The label of a part of a memory's score."""
    return gettext(_SCORE_PARTS.get(source, source.replace("_", " ")))


_JOB_KINDS = {
    "backup": N_("the nightly backup"),
    "story_memory": N_("updating memory, relationships and the scene after a turn"),
    "story_close": N_("ending a scene"),
    "story_retell": N_("summarising older turns"),
    "desk_message": N_("answering at the desk"),
    "desk_wake": N_("reading a worker's result"),
    "desk_branch": N_("a branch at the desk"),
    "desk_worker": N_("a worker at the desk"),
    "desk_compact": N_("summarising a conversation at the desk"),
    "desk_tell": N_("reporting a result from the desk"),
    "desk_schedule": N_("a scheduled task"),
}


def job_label(kind: str) -> str:
    """The label of a kind of job."""
    return gettext(_JOB_KINDS.get(kind, kind.replace("_", " ")))


_MEMORY_TYPES = {
    "identity": N_("identity"),
    "goal": N_("goal"),
    "decision": N_("decision"),
    "todo": N_("todo"),
    "preference": N_("preference"),
    "fact": N_("fact"),
    "event": N_("event"),
    "observation": N_("observation"),
    "relationship": N_("relationship"),
    "running_joke": N_("running joke"),
    "persona_note": N_("persona note"),
}


def memory_type_label(kind: str) -> str:
    """The name of a type of memories."""
    return gettext(_MEMORY_TYPES.get(kind, kind.replace("_", " ")))


# States of proposals, traits of personas


_PROPOSAL_STATES = {
    "pending": N_("pending"),
    "accepted": N_("accepted"),
    "declined": N_("declined"),
    "edited-and-accepted": N_("edited and accepted"),
    "withdrawn": N_("withdrawn"),
}


def proposal_state_label(state: str) -> str:
    """What became of a proposal."""
    return gettext(_PROPOSAL_STATES.get(state, state.replace("-", " ")))


_PROPOSAL_MATCHES = {
    "normalised": N_("normalised"),
    "markup": N_("markup"),
    "ellipsis": N_("ellipsis"),
    "fuzzy": N_("fuzzy"),
}


def proposal_match_label(how: str) -> str:
    """How the words of a proposal were found in the document, if not exactly."""
    return gettext(_PROPOSAL_MATCHES.get(how, how))


_TRAITS = {
    "talkativeness": N_("talkativeness"),
    "meme_level": N_("meme level"),
    "helpfulness": N_("helpfulness"),
    "contrarian": N_("contrarian"),
    "warmth": N_("warmth"),
    "interests": N_("interests"),
    "relationship": N_("relationship"),
}


def trait_label(name: str) -> str:
    """A trait of a persona, or another part of it that changes."""
    return gettext(_TRAITS.get(name, name.replace("_", " ")))


_SUMMARY = {
    "Version": N_("Version"),
    "Events": N_("Events"),
    "Database": N_("Database"),
    "Data folder": N_("Data folder"),
}


def summary_label(name: str) -> str:
    """The label of a row of the summary on the about page."""
    return gettext(_SUMMARY.get(name, name))


# Why a reply broke off: what happened, what to do, and the button that helps


_MODELS = (N_("Settings → Models"), "/settings#models")


@dataclass(frozen=True)
class ReplyError:
    code: str
    """For tests and styles: `stopped`, `length`, `restart`, `401`, `429`, `5xx`, `lost`."""
    kind: Literal["info", "warn", "danger"]
    title: str
    text: str = ""
    act: str = N_("Regenerate")
    link: tuple[str, str] | None = None
    retry_at: int | None = None
    """When trying again may help, in milliseconds since 1970."""


_KNOWN = {
    "stopped": ReplyError("stopped", "info", N_("You stopped this reply."), N_("What was said is kept.")),
    "length": ReplyError("length", "info", N_("The reply reached the length limit."), N_("What was said is kept.")),
    "restart": ReplyError(
        "restart", "warn", N_("Coterie stopped in the middle of this reply."), N_("What was said is kept.")
    ),
}


def reply_error(
    why: str, status: int | None = None, *, has_text: bool = True, retry_at: datetime | None = None
) -> ReplyError:
    """`why` as stored with the reply, `status` the HTTP status of the provider, `has_text` whether any text is kept."""
    error = _reply_error(why, status)
    if not has_text:
        kept = {"lost": N_("Connection lost before the reply began.")}.get(error.code, error.title)
        error = replace(error, title=kept, text="" if why in _KNOWN else error.text)
    return error if retry_at is None else replace(error, retry_at=int(retry_at.timestamp() * 1_000))


def _reply_error(why: str, status: int | None) -> ReplyError:
    if why in _KNOWN:
        return _KNOWN[why]
    status = status or 0
    if status in (401, 403):
        return ReplyError("401", "danger", N_("The provider refused the key."), why, N_("Retry"), _MODELS)
    if status == 402:
        return ReplyError("402", "danger", N_("The provider requires payment."), why, N_("Retry"), _MODELS)
    if status == 429:
        return ReplyError("429", "warn", N_("The provider asks to slow down."), why, N_("Retry"))
    if status >= 500:
        return ReplyError("5xx", "warn", N_("The provider failed."), why, N_("Retry"))
    if status >= 400:
        return ReplyError("4xx", "danger", N_("The provider rejected the request."), why, N_("Retry"), _MODELS)
    return ReplyError("lost", "warn", N_("Connection lost, partial reply saved."), why)
