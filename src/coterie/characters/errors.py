"""Errors of characters, their files, and people.

NoSuchCharacter          there is no character of that name or id
BadCharacter             a name or text that a character cannot have; nothing was stored
ConfirmationMismatch     the name typed to confirm is not the character's
NoSuchPerson             there is no person of that name or account
NoSuchLorebook           there is no lorebook of that id
NoSuchPersona            there is no persona of that id
BadEntry                 an entry of a lorebook that cannot be stored
BadPicture               the file is no picture, or too large
NoSuchEntry              the lorebook has no entry of that key
BadCode                  a code that was used, has expired, or was never issued

CardError                the file cannot become a character; it was not imported
├── NotACard             a valid file without a character card (or lorebook, or chat)
├── BrokenCard           a card that is too damaged to be read
├── CardTooBig           more bytes, values or files than a card may have
└── UnsafeCard           a file that looks like an attack
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class CardError(CoterieError):
    exit_code = 20


class NotACard(CardError):
    pass


class NoSuchLorebook(CoterieError):
    http_status = 404


class NoSuchPersona(CoterieError):
    http_status = 404


class BadPicture(CoterieError):
    http_status = 422


class NoSuchEntry(CoterieError):
    http_status = 404


class BadEntry(CoterieError):
    http_status = 422


class BrokenCard(CardError):
    pass


class CardTooBig(CardError):
    http_status = 413


class UnsafeCard(CardError):
    pass


class NoSuchCharacter(CoterieError):
    http_status = 404
    exit_code = 21


class BadCharacter(CoterieError):
    http_status = 422
    exit_code = 21


class ConfirmationMismatch(CoterieError):
    exit_code = 21


class NoSuchPerson(CoterieError):
    exit_code = 22


class BadCode(CoterieError):
    exit_code = 22


class NoSuchKey(CoterieError):
    http_status = 404
    exit_code = 22
