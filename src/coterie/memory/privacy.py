"""What memory must not keep: credentials and card numbers of anyone, contact details of third parties."""

from __future__ import annotations

import re

from coterie.base.masking import redact

_CARD = re.compile(r"\b(?:\d[ -]?){13,19}\b")
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_PHONE = re.compile(r"(?<![\w.])(?:\+\d{1,3}[\s./-]?)?(?:\(\d{1,4}\)[\s./-]?)?\d{2,4}(?:[\s./-]?\d{2,4}){2,4}(?![\w])")
_DIGITS = re.compile(r"\d[ -]?\d[ -]?\d[ -]?\d[ -]?\d")
_SECRET_HINT = re.compile(r"(?i)pass|pin|key")
_PASSWORD = re.compile(
    r"(?i)\b(pass(?:word|phrase|code)|pin(?: code)?|api key|secret key)(\s+(?:is|was)\s+|\s*[:=]\s*)(\S+)"
)


def remove_secrets(text: str) -> str:
    """Credentials and card numbers out, whoever they belong to."""
    masked = redact(text)
    if _SECRET_HINT.search(masked):
        masked = _PASSWORD.sub(r"\1\2[secret]", masked)
    if not _DIGITS.search(masked):
        return masked
    return _CARD.sub(lambda found: "[card]" if _is_card(found[0]) else found[0], masked)


def remove_contacts(text: str) -> str:
    """E-mail addresses and telephone numbers out: for what is stored about somebody else."""
    cleared = _EMAIL.sub("[email]", text)
    return _PHONE.sub(lambda found: "[phone]" if _is_phone(found[0]) else found[0], cleared)


def _is_card(text: str) -> bool:
    digits = [int(letter) for letter in text if letter.isdigit()]
    doubled = [
        digit if index % 2 else sum(divmod(2 * digit, 10)) for index, digit in enumerate(digits, len(digits) % 2)
    ]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0


def _is_phone(text: str) -> bool:
    digits = sum(letter.isdigit() for letter in text)
    looks_like_date = re.fullmatch(r"\s*\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\s*|\s*\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\s*", text)
    return digits >= 7 and looks_like_date is None
