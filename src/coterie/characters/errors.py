"""What can be wrong with a character, with the file it comes in, or with who somebody says they are.

NoSuchCharacter          nobody of that name or id is in the cast
NoSuchPerson             nobody of that name or account is known
BadCode                  a code that was used, has expired, or never was
NotConfirmed             what cannot simply be undone was not confirmed

CardError                the file cannot become a character; it was not imported
├── NotACard             a sound file that holds no character card (or lorebook, or chat)
├── BrokenCard           a card that is damaged past reading
├── CardTooBig           more bytes, values or files than a card may have
└── UnsafeCard           a file made to do harm, or so close to it that it makes no difference
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class CardError(CoterieError):
    exit_code = 20


class NotACard(CardError):
    pass


class BrokenCard(CardError):
    pass


class CardTooBig(CardError):
    http_status = 413


class UnsafeCard(CardError):
    pass


class NoSuchCharacter(CoterieError):
    http_status = 404
    exit_code = 21


class ConfirmationMismatch(CoterieError):
    exit_code = 21


class NoSuchPerson(CoterieError):
    exit_code = 22


class BadCode(CoterieError):
    exit_code = 22
