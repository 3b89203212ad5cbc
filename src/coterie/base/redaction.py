"""Keeps secrets out of what is written down.

A `Mask` knows the secrets that were registered (in plain, base64, hex, URL and quoted forms) and the shapes
that well-known credentials have. Logs, errors, recordings and whatever leaves the house pass through it.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading

REDACTED = "[secret]"
_SHORTEST_SECRET = 6

_SHAPES = re.compile(
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
"""What any of the shapes must contain."""


class Redactor:
    def __init__(self) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def register(self, secret: str) -> None:
        """From now on `secret` is masked, however it is encoded. Very short ones are not: they are words."""
        if len(secret) < _SHORTEST_SECRET:
            return
        with self._lock:
            self._forms |= {*map(re.escape, _literal_forms(secret)), *_loose_forms(secret)}
            longest_first = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join(longest_first))

    def __call__(self, text: str) -> str:
        found = [] if self._pattern is None else [match.span() for match in self._pattern.finditer(text)]
        # Most texts hold none of these, and looking for a few words is far quicker than trying every shape.
        if any(hint in text for hint in _HINTS):
            found += [match.span() for match in _SHAPES.finditer(text)]
        return _without(text, found) if found else text

    def contains_secret(self, text: str) -> bool:
        return self(text) != text


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """Both were looked for in the text as it was: a secret inside a longer key must not show the rest of the key."""
    kept: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            kept += [text[done:start], REDACTED]
        done = max(done, end)
    return "".join([*kept, text[done:]])


def _literal_forms(secret: str) -> set[str]:
    """The secret itself, as a JSON string, as HTML, as Python shows it, and in base64."""
    forms = {secret, html.escape(secret), repr(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    raw = secret.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        # Inside a longer text a secret can start at any of three offsets within a base64 group; only
        # the characters that no neighbour can influence are looked for.
        for offset in range(3):
            encoded = encode(b"\0" * offset + raw).decode().rstrip("=")
            start = (offset * 8 + 5) // 6
            whole = (offset + len(raw)) * 8 // 6
            inner = encoded[start:whole]
            if len(inner) >= _SHORTEST_SECRET:
                forms.add(inner)
    return forms


def _loose_forms(secret: str) -> set[str]:
    """Patterns for encodings that leave a choice: which characters a URL escapes, and the case of hex digits."""
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
"""The process-wide mask: configuration and the secrets store register here, logs read from here."""
