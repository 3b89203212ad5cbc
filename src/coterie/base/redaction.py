"""Redaction of secrets in logs, errors, recordings and outgoing text.

A `Redactor` replaces registered secrets (plain, base64, hex, URL-encoded and quoted) and text that has the format of
well-known credentials.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading

REDACTED = "[secret]"
_SHORTEST_SECRET = 6

_CREDENTIALS = re.compile(
    r"""
      -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    | \bsk-[A-Za-z0-9_-]{16,}
    | \bgh[pousr]_[A-Za-z0-9]{20,}
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bAIza[A-Za-z0-9_-]{30,}
    | \bxox[abprs]-[A-Za-z0-9-]{10,}
    | \bAKIA[A-Z0-9]{16}\b
    | (?<=Bearer\ )[A-Za-z0-9._~+/=-]{12,}
    """,
    re.VERBOSE | re.DOTALL,
)

_HINTS = (
    *("PRIVATE KEY", "sk-", "AIza", "xox", "AKIA", "Bearer "),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
)
"""Every credential contains at least one of these."""


class Redactor:
    def __init__(self) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def register(self, secret: str) -> None:
        """Redact `secret` from now on, in every encoding. Very short ones are ignored: they could be words."""
        if len(secret) < _SHORTEST_SECRET:
            return
        with self._lock:
            self._forms |= {*map(re.escape, _literal_forms(secret)), *_pattern_forms(secret)}
            longest_first = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join(longest_first))

    def __call__(self, text: str) -> str:
        spans = [] if self._pattern is None else [match.span() for match in self._pattern.finditer(text)]
        # Most texts contain no hint, and searching for hints is much faster than matching every pattern.
        if any(hint in text for hint in _HINTS):
            spans += [match.span() for match in _CREDENTIALS.finditer(text)]
        return _replace_spans(text, spans) if spans else text

    def contains_secret(self, text: str) -> bool:
        return self(text) != text


def _replace_spans(text: str, spans: list[tuple[int, int]]) -> str:
    """Replace spans, which may overlap: a secret inside a longer key must not reveal the rest of the key."""
    kept: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            kept += [text[done:start], REDACTED]
        done = max(done, end)
    return "".join([*kept, text[done:]])


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


def _pattern_forms(secret: str) -> set[str]:
    """Patterns for encodings with variants: which characters a URL escapes, and the case of hex digits."""
    escaped = ["".join(f"%{byte:02X}" for byte in character.encode()) for character in secret]
    in_url = [
        character if character.isascii() and character.isalnum() else _either(character, code)
        for character, code in zip(secret, escaped, strict=True)
    ]
    return {"".join(in_url), f"(?i:{''.join(escaped)})", f"(?i:{secret.encode().hex()})"}


def _either(character: str, code: str) -> str:
    plus = r"|\+" if character == " " else ""
    return f"(?:{re.escape(character)}|(?i:{code}){plus})"


redact = Redactor()
"""The redactor of this process: configuration and the secrets store register secrets, logs use it."""
