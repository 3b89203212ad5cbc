"""From a card to bytes, in any format. Importing them again gives the same card; what a format has no place
for is said, so that nobody loses a picture without knowing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from coterie.cast.cards.card import Card
from coterie.cast.cards.charx import write_charx
from coterie.cast.cards.document import write_object
from coterie.cast.cards.imported import CardFormat
from coterie.cast.cards.importer import check_size
from coterie.cast.cards.png import PNG_SIGNATURE
from coterie.cast.cards.png_card import write_png_card
from coterie.cast.cards.versions import as_v2, as_v3
from coterie.cast.errors import NotACard

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
