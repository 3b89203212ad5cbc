"""Names for ids: who is meant where the log holds an id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.shared.prose import clean_line


class DisplayNames:
    def __init__(self, house: House) -> None:
        self.bots = {bot.id: clean_line(bot.name) for bot in house.characters.all()}
        self._people = {person.id: clean_line(person.name) for person in house.people.all()}
        self.rooms = {chat.room: clean_line(chat.title) for chat in house.story.chats.chats()}

    def name(self, who: str) -> str:
        """As people say it; what is nobody's id is a name already."""
        return self._people.get(who) or self.bots.get(who, clean_line(who))

    def room(self, stream: str) -> str:
        """The title of a chat, or where else something is kept."""
        if stream in self.rooms:
            return self.rooms[stream]
        kind, _, of = stream.partition(":")
        return f"came with {self.name(of)}" if kind == "memory" else "a chat that is gone"


# Words for what the house calls by short names: parts of a score, kinds of work.


_SCORE_PARTS = {
    "words": "the same words",
    "vectors": "what it means",
    "maxsim": "words that mean the same",
    "embedder": "what it means, by the embedder",
    "neighbours": "what was said around it",
    "session": "the scene it is from",
    "speaker": "who said it",
    "links": "what it is tied to",
    "recency": "how new it is",
    "significance": "how much it mattered",
    "pins": "pinned",
    "people": "who is named",
    "time": "when it was",
    "updates": "it replaces another",
    "start": "where all begin",
}


def score_part_label(source: str) -> str:
    """A part of a memory's score, as a person would name it."""
    return _SCORE_PARTS.get(source, source.replace("_", " "))


_JOB_KINDS = {
    "backup": "the nightly backup",
    "story_memory": "remembering a turn",
    "story_state": "how a turn changed feelings",
    "story_significance": "how much a memory matters",
    "story_scene": "whether a scene has ended",
    "story_close": "closing a scene",
    "story_retell": "retelling what was said before",
    "desk_message": "answering at the desk",
    "desk_wake": "looking at what came of work",
    "desk_branch": "thinking at the desk",
    "desk_worker": "a step of work at the desk",
    "desk_compact": "summarising a conversation at the desk",
    "desk_tell": "bringing news from the desk",
    "desk_schedule": "something on the timetable",
}


def job_label(kind: str) -> str:
    """A kind of job, as a person would name it."""
    return _JOB_KINDS.get(kind, kind.replace("_", " "))


# Why a reply broke off, as a person is told: what happened, what to do, and the one button that helps. S20


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


_KNOWN = {
    "stopped": ReplyError("stopped", "info", "You stopped this reply.", "What was said is kept."),
    "length": ReplyError("length", "info", "The reply reached its longest length.", "What was said is kept."),
    "restart": ReplyError("restart", "warn", "Coterie stopped in the middle of this reply.", "What was said is kept."),
}


def reply_error(why: str, status: int | None = None) -> ReplyError:
    """`why` is what the log says of the end of a reply, `status` what the provider refused it with."""
    if why in _KNOWN:
        return _KNOWN[why]
    status = status or 0
    if status in (401, 403):
        return ReplyError("401", "danger", "The provider refused the key.", why, "Retry", _MODELS)
    if status == 402:
        return ReplyError("402", "danger", "The provider wants to be paid first.", why, "Retry", _MODELS)
    if status == 429:
        return ReplyError("429", "warn", "The provider asks to slow down.", why, "Retry")
    if status >= 500:
        return ReplyError("5xx", "warn", "The provider has trouble of its own.", why, "Retry")
    if status >= 400:
        return ReplyError("4xx", "danger", "The provider did not take the request.", why, "Retry", _MODELS)
    return ReplyError("lost", "warn", "Connection lost, partial reply saved.", why)
