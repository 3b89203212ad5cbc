"""Redaction of secrets in events, prompts, logs, errors, recordings and outgoing text.

A `Redactor` replaces registered secrets (plain, base64, hex, URL-encoded and quoted) and text that has the format of
well-known credentials. A `StreamRedactor` does the same to text that arrives in chunks.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_origin

from ahocorasick_rs import AhoCorasick, Implementation
from pydantic import BaseModel

from coterie.base.errors import SecretInName
from coterie.base.values import is_text

REDACTED = "[secret]"
_SHORTEST_SECRET = 6
_SHORTEST_IN_NAMES = 12
"""A shorter secret can be a part of an ordinary name."""

# In ids of Matrix and in random tokens these letters can follow "$" or "-" by chance.
_START = r"(?<![$-])\b"
_PEM_BEGIN = r"-----BEGIN[ A-Z]*PRIVATE\ KEY-----"
_PEM_END = r"-----END[ A-Z]*PRIVATE\ KEY-----"
_CREDENTIALS = re.compile(
    rf"""
      {_PEM_BEGIN}.*?(?:{_PEM_END}|\Z)
    | {_START}sk-[A-Za-z0-9_-]{{16,}}
    | {_START}gh[pousr]_[A-Za-z0-9]{{20,}}
    | {_START}github_pat_[A-Za-z0-9_]{{20,}}
    | {_START}AIza[A-Za-z0-9_-]{{30,}}
    | {_START}xox[abprs]-[A-Za-z0-9-]{{10,}}
    | {_START}AKIA[A-Z0-9]{{16}}\b
    | (?<=Bearer\ )[A-Za-z0-9._~+/=-]{{12,}}
    """,
    re.VERBOSE | re.DOTALL,
)
_UNFINISHED_CREDENTIAL = re.compile(
    rf"""(?:
      {_PEM_BEGIN}(?:(?!{_PEM_END}).)*
    | -----(?:B(?:E(?:G(?:I(?:N[ A-Z]*-{{0,4}})?)?)?)?)?
    | -{{1,4}}
    | Bearer\ [A-Za-z0-9._~+/=-]*
    | B(?:e(?:a(?:r(?:e(?:r)?)?)?)?)?
    | {_START}(?:
          sk-[A-Za-z0-9_-]*
        | gh[pousr]_[A-Za-z0-9]*
        | github_pat_[A-Za-z0-9_]*
        | AIza[A-Za-z0-9_-]*
        | xox[abprs]-[A-Za-z0-9-]*
        | AKIA[A-Z0-9]*
        | sk? | gh? | gh[pousr] | gi(?:t(?:h(?:u(?:b(?:_(?:p(?:a(?:t)?)?)?)?)?)?)?)? | A(?:Iz?|KI?)? | xo?x?[abprs]?
        )
    )\Z""",
    re.VERBOSE | re.DOTALL,
)
"""The end of a text that may be the beginning of a credential, or a credential that may go on."""
_HINTS = (
    *("PRIVATE KEY", "sk-", "AIza", "xox", "AKIA", "Bearer "),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
)
"""Every credential contains at least one of these."""
_URL_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")

Form = tuple[tuple[str, ...], ...]
"""One encoding of a secret: a sequence of steps, each matched by any of its strings. Longer strings than one character
are upper-case hex digits, and match in either case."""


@dataclass(frozen=True)
class _SearchIndex:
    """What is searched for. It is replaced as a whole, so that readers need no lock."""

    pattern: re.Pattern[str] | None
    name_pattern: re.Pattern[str] | None
    """The secrets that are too long to be a part of a name by chance."""
    automaton: AhoCorasick
    """A quick search in lower-case text for everything but URL escapes."""
    by_first: dict[str, list[Form]] = field(default_factory=dict)
    """The forms by the characters they may begin with."""


class Redactor:
    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._index = _build_index(())
        self._lock = threading.Lock()

    def register(self, secret: str) -> None:
        """Redact `secret` from now on, in every encoding. Very short ones are ignored: they could be words."""
        # A part of the placeholder would be replaced again in text that was redacted already, and text with a lone
        # surrogate can be neither sent nor stored.
        if len(secret) < _SHORTEST_SECRET or secret in REDACTED or not is_text(secret):
            return
        with self._lock:
            if secret not in self._secrets:
                self._secrets.add(secret)
                self._index = _build_index(self._secrets)

    def __call__(self, text: str) -> str:
        spans = self.spans(text)
        return _replace_spans(text, spans) if spans else text

    def spans(self, text: str, begin: int = 0) -> list[tuple[int, int]]:
        """Start and end of every secret from `begin` on; they may overlap."""
        if not self.may_contain_secret(text):
            return []
        pattern = self._index.pattern
        spans = [] if pattern is None else [match.span() for match in pattern.finditer(text, begin)]
        if any(hint in text for hint in _HINTS):
            spans += [match.span() for match in _CREDENTIALS.finditer(text, begin)]
        return spans

    def may_contain_secret(self, text: str) -> bool:
        """A quick search: if False, no secret is in the text nor, if it is JSON, in a string of it."""
        index = self._index
        try:
            if index.automaton.find_matches_as_strings(text.casefold()):
                return True
        except UnicodeEncodeError:
            return True  # a lone surrogate
        return index.pattern is not None and "%" in text and _URL_ESCAPE.search(text) is not None

    def contains_secret(self, text: str) -> bool:
        return bool(self.spans(text))

    def count_registered(self, text: str) -> int:
        """How many registered secrets are in the text; what only has the format of a credential does not count."""
        pattern = self._index.pattern
        return len(pattern.findall(text)) if pattern is not None and self.may_contain_secret(text) else 0

    def check_names(self, *names: str | None) -> None:
        """`SecretInName` if an id or a name contains a registered secret that is too long to be there by chance.

        Names are refused and not redacted, because others refer to them.
        """
        pattern = self._index.name_pattern
        if pattern is not None and any(
            name and self.may_contain_secret(name) and pattern.search(name) for name in names
        ):
            raise SecretInName(
                "A configured secret was found in a name or an id, so nothing was stored.",
                "Use a name that does not contain a key, token or password.",
            )

    def value(self, value: Any) -> Any:
        """A value with every string in it redacted; the same object if there is nothing to redact.

        It may consist of models, dicts, lists and tuples. A string that is JSON stays JSON.
        """
        if isinstance(value, str):
            return self.json(value) if value[:1] in ("{", "[") else self(value)
        if isinstance(value, BaseModel):
            return self._model(value)
        if isinstance(value, dict):
            redacted = {self.value(key): self.value(item) for key, item in value.items()}
            return value if redacted == value else redacted
        if isinstance(value, list | tuple):
            items = type(value)(map(self.value, value))
            return value if items == value else items
        return value

    def _model(self, model: BaseModel) -> BaseModel:
        changes: dict[str, Any] = {}
        for name, info in type(model).model_fields.items():
            value = getattr(model, name)
            # One of a few fixed words is not a secret, even if somebody's password is such a word.
            if get_origin(info.annotation) is not Literal and (redacted := self.value(value)) != value:
                changes[name] = redacted
        return model.model_copy(update=changes) if changes else model

    def json(self, text: str) -> str:
        """JSON with every string in it redacted. Text that is not JSON is redacted as it is."""
        if not self.may_contain_secret(text):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self(text)
        redacted = self.value(value)
        return text if redacted == value else json.dumps(redacted, ensure_ascii=False)

    def unfinished_from(self, text: str) -> int:
        """Where the first secret starts that may go on after the end of the text; its length if there is none."""
        for start, letter in enumerate(text):
            for form in self._index.by_first.get(letter, ()):
                if _reaches_end(form, text, start):
                    return start
        return len(text)


class StreamRedactor:
    """Redacts text that arrives in chunks: the results, joined, are the redacted text.

    The end of a chunk that may be the beginning of a secret is held back until the next chunk shows whether it is.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self.found_secret = False
        self._redactor = redactor or redact
        self._held = ""
        self._before = ""
        """The end of what was returned already: credentials start at the start of a word."""

    def filter(self, chunk: str) -> str:
        """The text that can be shown now, of this chunk and of what was held back."""
        return self._take(self._held + chunk, complete=False) if chunk else ""

    def flush(self) -> str:
        """The text still held back, at the end of the stream."""
        return self._take(self._held, complete=True)

    def _take(self, text: str, *, complete: bool) -> str:
        before = len(self._before)
        whole = self._before + text
        spans = [(start - before, end - before) for start, end in self._redactor.spans(whole, before)]
        end = len(text)
        if not complete:
            end = self._redactor.unfinished_from(text)
            if credential := _UNFINISHED_CREDENTIAL.search(whole, before):
                end = min(end, credential.start() - before)
            # Spans that overlap become one gap, which cannot be divided.
            while overlapping := [start for start, stop in spans if start < end < stop]:
                end = min(overlapping)
        self._held = text[end:]
        self._before = (self._before + text[:end])[-len("Bearer ") :]
        spans = [span for span in spans if span[0] < end]
        self.found_secret = self.found_secret or bool(spans)
        return _replace_spans(text[:end], spans)


def _replace_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Replace spans, which may overlap: a secret inside a longer key must not reveal the rest of the key."""
    kept: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            kept += [text[done:start], REDACTED]
        done = max(done, end)
    return "".join([*kept, text[done:]])


def _build_index(secrets: Iterable[str]) -> _SearchIndex:
    by_secret = {secret: _forms(secret) for secret in secrets}
    forms = {form for found in by_secret.values() for form in found}
    long_forms = {form for secret, found in by_secret.items() if len(secret) >= _SHORTEST_IN_NAMES for form in found}
    by_first: dict[str, list[Form]] = {}
    for form in forms:
        for first in {letter for choice in form[0] for letter in (choice[0], choice[0].lower())}:
            by_first.setdefault(first, []).append(form)
    literals = {secret.replace(" ", "+") for secret in by_secret}
    literals |= {"".join(choice for (choice,) in form) for form in forms if all(len(step) == 1 for step in form)}
    literals |= {json.dumps(literal, ensure_ascii=False)[1:-1] for literal in literals}
    words = sorted({literal.casefold() for literal in (*literals, *_HINTS)})
    automaton = AhoCorasick(words, implementation=Implementation.ContiguousNFA)
    return _SearchIndex(_pattern(forms), _pattern(long_forms), automaton, by_first)


def _pattern(forms: Iterable[Form]) -> re.Pattern[str] | None:
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile("|".join("".join(map(_step_pattern, form)) for form in longest_first)) if longest_first else None


def _step_pattern(step: tuple[str, ...]) -> str:
    choices = [re.escape(choice) if len(choice) == 1 else f"(?i:{choice})" for choice in step]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"


def _reaches_end(form: Form, text: str, start: int) -> bool:
    """Whether the text ends, from `start` on, with the form's beginning and more of it could follow."""
    positions = {start}
    for step in form:
        following = set()
        for position in positions:
            for choice in step:
                piece = text[position : position + len(choice)]
                if len(choice) > 1:
                    piece = piece.upper()
                if len(piece) < len(choice):
                    if choice.startswith(piece):
                        return True
                elif piece == choice:
                    following.add(position + len(choice))
        positions = following
    return False


def _forms(secret: str) -> set[Form]:
    """Every encoding of a secret. Where they have variants (which characters a URL escapes), a step has choices."""
    escaped = ["".join(f"%{byte:02X}" for byte in letter.encode()) for letter in secret]
    in_url = tuple(
        (letter,) if letter.isascii() and letter.isalnum() else (letter, code, "+") if letter == " " else (letter, code)
        for letter, code in zip(secret, escaped, strict=True)
    )
    hex_digits = tuple((f"{byte:02X}",) for byte in secret.encode())
    literal = {tuple((letter,) for letter in form) for form in _literal_forms(secret)}
    return {*literal, in_url, tuple((code,) for code in escaped), hex_digits}


def _literal_forms(secret: str) -> set[str]:
    """The secret itself, as a JSON string, in HTML, as a Python literal, and in base64."""
    forms = {secret, html.escape(secret), repr(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    raw = secret.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        # Inside a longer text a secret can start at any of three offsets within a base64 group. Only the characters
        # that do not depend on the neighbouring bytes are searched for.
        for offset in range(3):
            encoded = encode(b"\0" * offset + raw).decode().rstrip("=")
            start = (offset * 8 + 5) // 6
            whole = (offset + len(raw)) * 8 // 6
            inner = encoded[start:whole]
            if len(inner) >= _SHORTEST_SECRET:
                forms.add(inner)
    return forms


redact = Redactor()
"""The redactor of this process: configuration and the secrets store register secrets, logs use it."""
