"""From bytes to a card. What a file is follows from what is in it; its name is only used to speak of it."""

from __future__ import annotations

from contextlib import suppress

from coterie.cast.cards.card import Card
from coterie.cast.cards.charx import looks_like_zip, read_charx
from coterie.cast.cards.document import read_object
from coterie.cast.cards.imported import ImportedCard
from coterie.cast.cards.limits import MAX_FILE_BYTES
from coterie.cast.cards.png import PNG_SIGNATURE
from coterie.cast.cards.png_card import read_png_card, strip_cards
from coterie.cast.errors import BrokenCard, CardTooBig, NotACard

_JPEG = b"\xff\xd8\xff"


def import_card(data: bytes, file_name: str) -> ImportedCard:
    """The card in a file, whichever format it has, or a CardError that says what is wrong with it."""
    check_size(len(data))
    card, kind, notes = _read(data, file_name)
    if card.is_newer:
        notes.append(f"made for a newer version of cards ({card.spec_version:g}); what is new in it is kept, not used")
    # A PNG shows the card's icon when the card has no picture; that copy is not a picture of its own.
    bare = Card.read(card.document, card.files)
    if card.picture is not None and bare.main_icon and strip_cards(bare.main_icon) == card.picture:
        card = bare
    return ImportedCard(card, kind, notes)


def check_size(size: int) -> None:
    """Ask this before reading a file into memory."""
    if size >= MAX_FILE_BYTES:
        raise CardTooBig(
            f"The file has {size / 1e6:.0f} MB; a card must be smaller than {MAX_FILE_BYTES / 1e6:.0f} MB.",
            "Take out assets, or make them smaller.",
        )


def _read(data: bytes, file_name: str) -> ImportedCard:
    if data.startswith(PNG_SIGNATURE):
        try:
            return read_png_card(data)
        except NotACard:
            # Some glue a CHARX behind a PNG; the bytes of a zip may also be there by chance.
            with suppress(BrokenCard):
                if looks_like_zip(data):
                    return read_charx(data)
            raise
    if looks_like_zip(data):
        return read_charx(data)
    if data.startswith(_JPEG):
        raise NotACard("There is no character card in this JPEG.", "Download the original PNG or CHARX.")
    if not data.strip():
        raise NotACard(f"{file_name or 'The file'} is empty.", "Download it again.")
    if data.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n\0")[:1] != b"{":
        raise NotACard(
            f"{file_name or 'The file'} is no card in a format we know.",
            "Cards are JSON, PNG or CHARX files.",
        )
    return ImportedCard(Card.read(read_object(data, "The card")), "json", [])
