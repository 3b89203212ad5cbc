"""Words for what the house calls by short names: parts of a score, kinds of work."""

from __future__ import annotations

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
