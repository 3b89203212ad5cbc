"""From bytes to a card. What a file is follows from what is in it; its name is only used to speak of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple, get_args

from coterie.characters.cards.card import Card, CardFormat, ImportedCard, as_v2, as_v3
from coterie.characters.cards.charx import looks_like_zip, read_charx, write_charx
from coterie.characters.cards.parsing import MAX_FILE_BYTES, read_object, write_object
from coterie.characters.cards.png import PNG_SIGNATURE, read_png_card, strip_cards, write_png_card
from coterie.characters.errors import BrokenCard, CardTooBig, NotACard

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


# From a card to bytes, in any format. Importing them again gives the same card; what a format has no place
# for is said, so that nobody loses a picture without knowing.


CardVersion = Literal["v2", "v3"]


class ExportedCard(NamedTuple):
    data: bytes
    left_behind: list[str]
    """What the format has no place for."""


def export_card(card: Card, kind: CardFormat, version: CardVersion | None = None) -> ExportedCard:
    """The card in a format. JSON keeps the card's own version unless told otherwise.

    What would be too big to be imported again is refused: base64 in a PNG takes a third more than a CHARX."""
    data, left_behind = _write(card, kind, version)
    check_size(len(data))
    return ExportedCard(data, left_behind)


def format_of(file_name: str) -> CardFormat:
    """The format a file name asks for."""
    endings: dict[str, CardFormat] = {kind: kind for kind in get_args(CardFormat)}
    if kind := endings.get(file_name.rsplit(".", 1)[-1].lower()):
        return kind
    raise NotACard(f"{file_name} does not say which format it should have.", "End it in .json, .png or .charx.")


def _write(card: Card, kind: CardFormat, version: CardVersion | None) -> tuple[bytes, list[str]]:
    match kind:
        case "json":
            document = card.document if version is None else as_v2(card) if version == "v2" else as_v3(card)
            return write_object(document, pretty=True) + b"\n", _only_in_containers(card)
        case "png":
            lost = (
                ["the picture, which is no PNG"] if card.picture and not card.picture.startswith(PNG_SIGNATURE) else []
            )
            return write_png_card(card), lost
        case "charx":
            return write_charx(card), []


def _only_in_containers(card: Card) -> list[str]:
    lost = [f"{len(card.files)} embedded files"] if card.files else []
    return [*lost, "the picture"] if card.picture else lost
