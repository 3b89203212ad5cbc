"""Every function that processes text of strangers or models, for the tests with hostile texts.

A function that compares two texts gets the text twice, or with a small change, so that nothing is found at once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

from coterie.base.redaction import Redactor, redact
from coterie.base.untrusted import escape_controls, json_line, one_line
from coterie.base.values import replace_surrogates
from coterie.characters.cards.lore_scan import LoreContext, Macros, find_lore
from coterie.characters.cards.lorebook import Lorebook, split_decorators
from coterie.characters.cards.parsing import comma_list
from coterie.characters.cards.tavern_chat import read_date
from coterie.characters.identity import split_samples
from coterie.conversation.reply_filters import LengthLimit, SpeakerGuard
from coterie.conversation.search import snippet
from coterie.llm.recording import _WORDS as RECORDED_WORDS
from coterie.llm.structured import _InvalidAnswer, contains_refusal, is_refusal, parse_answer
from coterie.llm.tokens import estimate_tokens
from coterie.memory.dedupe import is_duplicate
from coterie.memory.errors import BadImport
from coterie.memory.extraction import Operations, text_with_subject
from coterie.memory.index.embedders import static_embedder
from coterie.memory.jsonl import _parse_line
from coterie.memory.text import (
    NameMatcher,
    digest,
    find_interval,
    fts_match_any,
    is_negated,
    is_question,
    keywords,
    numbers_in,
)
from coterie.memory.writer import remove_contacts, remove_secrets
from coterie.messaging.files import display_name, safe_name
from coterie.messaging.streaming import first_part, split_text
from coterie.modes.crowd.audio.transcriber import fix_sentences, fix_transcript
from coterie.modes.crowd.chat_signals import _bigrams, _is_noise, chat_keywords
from coterie.modes.crowd.generation import LineRules, length_problem, remove_unpaired_marks, shorten
from coterie.modes.crowd.moderation.moderator import Moderator, linked_hosts
from coterie.modes.crowd.moderation.moderator import redact as redact_contacts
from coterie.modes.crowd.moderation.wordlist import alternative_readings, fold
from coterie.modes.crowd.protocol import MAX_MESSAGE_CHARS
from coterie.modes.crowd.session.stream_context import asks_chat, detect_event
from coterie.modes.crowd.session.stream_sources import _cues
from coterie.modes.desk.skills import _FRONT_MATTER
from coterie.modes.desk.text_safety import LeakGuard, mark_untrusted
from coterie.modes.draft.diff import Span, edits_between, merge_keeping_both, merge_texts, unified_diff, word_diff
from coterie.modes.draft.edit_formats import parse_reply, quotable_sentences
from coterie.modes.draft.git import _TITLE
from coterie.modes.draft.locate import anchor_at, locate, move_anchors, normalise
from coterie.modes.draft.replies import _CHUNK as DRAFT_CHUNKS
from coterie.modes.draft.threads import _quoted_original
from coterie.modes.story.analysis.scene_rules import detect_scene_change
from coterie.modes.story.turn_parser import parse_segments, unmarked_segment
from coterie.modes.story.turns import _first_mention
from coterie.surfaces.matrix.schemas import read_event, to_html
from coterie.surfaces.web.shared.prose import (
    clean_fragment,
    clean_line,
    excerpt,
    render_prose,
    show_invisible,
    split_blocks,
)

_NOW = datetime(2025, 6, 1, tzinfo=UTC)
_MODERATOR = Moderator([])
MAX_TRANSCRIPT = 2_000
"""What is heard of a stream at once is at most this long."""


def _guarded(text: str) -> str:
    """Through the filters of a streamed reply, in chunks as a model sends them."""
    guard = SpeakerGuard(["Ada"], ["Ben Holt"], LengthLimit(10_000_000))
    chunks = [text[start : start + 40] for start in range(0, len(text), 40)]
    return "".join(map(guard.filter, chunks)) + guard.flush()


def _streamed_changes(text: str) -> object:
    from coterie.modes.draft.edit_formats import parser_for

    parsers = [parser_for("tags"), parser_for("search_replace"), parser_for("json")]
    return [
        [*[parser.feed(text[start : start + 40]) for start in range(0, len(text), 40)], parser.end()]
        for parser in parsers
    ]


def _lore(text: str) -> object:
    entry = {"keys": ["lamp", text[:2_000]], "secondary_keys": ["sea"], "selective": True, "content": text}
    patterns = {"keys": ["/(a+)+$/", "/(\\s*)+x/", "/(.*)*y/"], "use_regex": True, "content": text}
    words = {"keys": ["lamp", text[:200]], "content": text, "extensions": {"match_whole_words": True}}
    book = Lorebook.read({"entries": [entry, patterns, words], "recursive_scanning": True})
    macros = Macros("Ada", "Ben", Random(1))
    return find_lore(book, LoreContext([text, text], macros=macros), estimate_tokens)


def _answer(text: str) -> object:
    try:
        return parse_answer(Operations, text)
    except _InvalidAnswer as error:
        return error


def _line(text: str) -> object:
    try:
        return _parse_line(text, 1)
    except BadImport as error:
        return error


def _matrix(text: str) -> object:
    content = {"msgtype": "m.text", "body": text, "m.relates_to": {"m.in_reply_to": {"event_id": "$1"}}}
    return read_event(
        "!room", {"type": "m.room.message", "sender": "@a:b", "event_id": "$2", "content": content}, "@c:d"
    )


def _moved(text: str) -> object:
    new = text[: len(text) // 2] + "x" + text[len(text) // 2 :]
    anchors = [anchor_at(text, Span(at, at + 10)) for at in range(0, len(text) - 10, max(len(text) // 5, 1))]
    return move_anchors(anchors, text, new, edits_between(text, new))


def _with_middle(text: str) -> str:
    return text[: len(text) // 2] + "x" + text[len(text) // 2 :]


TEXT_ENTRY_POINTS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "redact a registered secret": lambda text: _redactor()(text),
    "one_line": lambda text: one_line(text, 200),
    "escape_controls": escape_controls,
    "json_line": json_line,
    "replace_surrogates": replace_surrogates,
    "Macros.expand": lambda text: Macros("Ada", "Ben", Random(1)).expand(text),
    "Macros.expand a list": lambda text: Macros("Ada", "Ben", Random(1)).expand("{{random:" + text + "}}"),
    "find_lore": _lore,
    "split_decorators": split_decorators,
    "comma_list": comma_list,
    "read_date": read_date,
    "split_samples": split_samples,
    "reply filters": _guarded,
    "snippet": lambda text: snippet(text, ["lamp", "a"]),
    "recorded words": RECORDED_WORDS.findall,
    "is_refusal": is_refusal,
    "contains_refusal": contains_refusal,
    "parse_answer": _answer,
    "estimate_tokens": estimate_tokens,
    "is_duplicate": lambda text: is_duplicate(text, _with_middle(text)),
    "extracted subject": lambda text: text_with_subject(text, "Ada", ["Ada"]),
    "embed": lambda text: static_embedder().embed([text]),
    "import line": _line,
    "NameMatcher": lambda text: NameMatcher(["Ada", "Ben"]).remove_from(text),
    "digest": digest,
    "find_interval": lambda text: find_interval(text, _NOW),
    "fts_match_any": fts_match_any,
    "is_negated": is_negated,
    "is_question": is_question,
    "keywords": keywords,
    "numbers_in": numbers_in,
    "remove_secrets": remove_secrets,
    "remove_contacts": remove_contacts,
    "display_name": display_name,
    "safe_name": safe_name,
    "split_text": lambda text: split_text(text, 2_000),
    "split_text in bytes": lambda text: split_text(text, 2_000, lambda part: len(part.encode())),
    "fix_transcript": lambda text: fix_transcript(text[:MAX_TRANSCRIPT]),
    "fix_sentences": lambda text: fix_sentences(text[:MAX_TRANSCRIPT]),
    "bigrams": _bigrams,
    "noise": _is_noise,
    "chat_keywords": lambda text: list(chat_keywords(text)),
    "length_problem": length_problem,
    "remove_unpaired_marks": remove_unpaired_marks,
    "shorten": shorten,
    "LineRules.clean": lambda text: LineRules(400).clean(text, "Ada"),
    "LineRules.refusal_reason": lambda text: LineRules(400).refusal_reason(
        LineRules(400).clean(text, "Ada"), [text], [text]
    ),
    # Lines of a crowd's chat are refused before if they are longer.
    "Moderator.check": lambda text: _MODERATOR.check(text[:MAX_MESSAGE_CHARS], strict=True),
    "linked_hosts": linked_hosts,
    "redact_contacts": redact_contacts,
    "fold": fold,
    "alternative_readings": lambda text: list(alternative_readings(text[:MAX_MESSAGE_CHARS])),
    "asks_chat": lambda text: asks_chat(text[:MAX_TRANSCRIPT]),
    "detect_event": lambda text: detect_event(text[:MAX_TRANSCRIPT]),
    "subtitles": lambda text: list(_cues(text)),
    "front matter": _FRONT_MATTER.match,
    "LeakGuard": lambda text: LeakGuard().has_secret(text),
    "mark_untrusted": lambda text: mark_untrusted(text, "a page"),
    "edits_between": lambda text: edits_between(text, _with_middle(text)),
    "merge_texts": lambda text: merge_texts(text, _with_middle(text), text + "y"),
    "merge_keeping_both": lambda text: merge_keeping_both(text, _with_middle(text), text[1:] + "y"),
    "unified_diff": lambda text: unified_diff(text, _with_middle(text) + "\n" + text, "notes.md"),
    "word_diff": lambda text: word_diff(text, _with_middle(text) + "\n" + text),
    "move_anchors": _moved,
    "parse_reply in parts": _streamed_changes,
    "parse_reply as tags": lambda text: parse_reply(text, "tags"),
    "parse_reply as search and replace": lambda text: parse_reply(text, "search_replace"),
    "quotable_sentences": quotable_sentences,
    "title of a document": _TITLE.search,
    "locate a short quote": lambda text: locate(text, "the lamp turns once more and the rain is gone"),
    "locate a long quote": lambda text: locate(text, text[:5_000] + "x"),
    "locate with an ellipsis": lambda text: locate(text, text[:100] + "... zzzz ..." + text[:50]),
    "normalise": lambda text: normalise(text, "markup"),
    "chunks of a draft reply": DRAFT_CHUNKS.findall,
    "quote in a message": _quoted_original,
    "quote in a message without its start": lambda text: _quoted_original("</original>" + text),
    "change of a scene": lambda text: detect_scene_change([text, f"We walk to {text}"]),
    "parse_segments": parse_segments,
    "unmarked_segment": lambda text: unmarked_segment(parse_segments(text), 5),
    "first mention": lambda text: _first_mention("Ada Holt", text),
    "Matrix message": _matrix,
    "to_html": lambda text: to_html(first_part(text, 8_000)),
    "clean_fragment": clean_fragment,
    "clean_line": clean_line,
    "excerpt": excerpt,
    "render_prose": render_prose,
    "show_invisible": show_invisible,
    "split_blocks": split_blocks,
}
"""By name."""

SLOW_ENTRY_POINTS = frozenset(
    [
        "parse_reply in parts",
        "locate a short quote",
        "locate a long quote",
        "locate with an ellipsis",
        "normalise",
    ]
)
"""Linear, but too slow for the longest texts: they get shorter ones."""


def _redactor() -> Redactor:
    redactor = Redactor()
    redactor.register("aaaaaaaa aaaaaaa")
    return redactor
