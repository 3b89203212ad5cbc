"""The chunks of a PNG, in which cards hide. Reading forgives a wrong checksum or a cut end and says so; writing
touches nothing but the card: every other chunk and every pixel keeps its bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from coterie.characters.cards.card import Card, ImportedCard, as_v3, backfill, older_if_unchanged
from coterie.characters.cards.parsing import (
    MAX_JSON_BYTES,
    MAX_PNG_CHUNKS,
    RESERVED_PATHS,
    Document,
    is_safe_path,
    read_object,
    write_object,
)
from coterie.characters.errors import BrokenCard, CardError, CardTooBig, NotACard

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TEXT_BYTES = MAX_JSON_BYTES * 2
"""A compressed text may become this long: base64 takes four bytes for three."""


class Chunk(NamedTuple):
    kind: bytes
    body: bytes
    raw: bytes
    """With length and checksum, as it stands in the file."""


class PngText(NamedTuple):
    keyword: str
    value: bytes


class Png(NamedTuple):
    chunks: list[Chunk]
    rest: bytes
    """What follows the last chunk."""
    notes: list[str]
    complete: bool

    def without(self, unwanted: Iterable[Chunk]) -> Png:
        gone = {id(chunk) for chunk in unwanted}
        return self._replace(chunks=[chunk for chunk in self.chunks if id(chunk) not in gone])

    def with_texts(self, texts: Iterable[PngText]) -> Png:
        """The picture with more texts, right before its end."""
        fresh = [_text_chunk(text) for text in texts]
        end = next((at for at, chunk in enumerate(self.chunks) if chunk.kind == b"IEND"), len(self.chunks))
        return self._replace(chunks=[*self.chunks[:end], *fresh, *self.chunks[end:]])

    def to_bytes(self) -> bytes:
        return PNG_SIGNATURE + b"".join(chunk.raw for chunk in self.chunks) + self.rest


def read_png(data: bytes) -> Png:
    if not data.startswith(PNG_SIGNATURE):
        raise BrokenCard("This is not a PNG picture.", "Save the card again as a PNG.")
    chunks: list[Chunk] = []
    notes: list[str] = []
    at = len(PNG_SIGNATURE)
    while at < len(data):
        if len(chunks) >= MAX_PNG_CHUNKS:
            raise CardTooBig(
                f"The picture has more than {MAX_PNG_CHUNKS:,} chunks.", "Save it again with an image program."
            )
        if at + 12 > len(data):
            break
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            break
        body, told = data[at + 8 : end - 4], int.from_bytes(data[end - 4 : end], "big")
        if zlib.crc32(body, zlib.crc32(kind)) != told:
            notes.append(f"the checksum of a {kind.decode('latin-1')!r} chunk at byte {at} is wrong")
        chunks.append(Chunk(kind, body, data[at:end]))
        at = end
        if kind == b"IEND":
            break
    complete = bool(chunks) and chunks[-1].kind == b"IEND"
    if not complete:
        notes.append(f"the picture is cut off at byte {at}")
    return Png(chunks, data[at:], notes, complete)


def read_text(chunk: Chunk) -> PngText | None:
    """The text in a chunk, or None when it holds none that can be read."""
    keyword, found, body = chunk.body.partition(b"\0")
    if not found:
        return None
    try:
        match chunk.kind:
            case b"tEXt":
                return PngText(_keyword(keyword), body)
            case b"zTXt" if body[:1] == b"\0":
                return PngText(_keyword(keyword), _inflate(body[1:]))
            case b"iTXt" if len(body) >= 2:
                compressed, method = body[0], body[1]
                _language, _, rest = body[2:].partition(b"\0")
                _translated, _, value = rest.partition(b"\0")
                if compressed and method == 0:
                    value = _inflate(value)
                return PngText(_keyword(keyword), value)
    except (zlib.error, ValueError):
        return None
    return None


def _keyword(raw: bytes) -> str:
    """PNG wants Latin-1; paths of assets are written in UTF-8 by everybody."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _inflate(packed: bytes) -> bytes:
    stream = zlib.decompressobj()
    value = stream.decompress(packed, _TEXT_BYTES)
    if stream.unconsumed_tail:
        raise ValueError("a text that unpacks to more than a card may be")
    return value


def _text_chunk(text: PngText) -> Chunk:
    return make_chunk(b"tEXt", text.keyword.encode() + b"\0" + text.value)


def make_chunk(kind: bytes, body: bytes) -> Chunk:
    checksum = zlib.crc32(body, zlib.crc32(kind))
    return Chunk(kind, body, struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum))


# A card in a picture: `ccv3` for programs that know V3, `chara` for the others, assets beside them. Both texts
# are base64 of UTF-8 JSON; `ccv3` counts when both are there.


_CARD_KEYWORDS = ("ccv3", "chara")
_ASSET = "chara-ext-asset_"
_BLANK = PngText("coterie", b"a blank picture: this card has none")


def read_png_card(data: bytes) -> ImportedCard:
    png = read_png(data)
    texts = [(chunk, text) for chunk in png.chunks if (text := read_text(chunk))]
    cards = [(chunk, text) for chunk, text in texts if text.keyword.lower() in _CARD_KEYWORDS]
    if not cards:
        cut = f" ({png.notes[-1]})" if not png.complete else ""
        raise NotACard(
            f"There is no character card in this picture{cut}.",
            "Sharing a picture often strips the card: download the original file.",
        )
    notes = list(png.notes)
    document = _choose([text for _, text in cards], notes)
    files, asset_chunks = _read_assets(texts, notes)
    picture = png.without([*(chunk for chunk, _ in cards), *asset_chunks])
    blank = any(text == _BLANK for _, text in texts)
    return ImportedCard(
        Card.read(document, files, picture.to_bytes() if png.complete and not blank else None), "png", notes
    )


def write_png_card(card: Card) -> bytes:
    older = backfill(card) if card.generation >= 3 else card.document
    texts = [PngText("chara", _encode(older)), PngText("ccv3", _encode(as_v3(card)))]
    texts += [PngText(f"{_ASSET}:{path}", base64.b64encode(data)) for path, data in card.files.items()]
    return read_png(picture_for(card)).with_texts(texts).to_bytes()


def picture_for(card: Card) -> bytes:
    """What to hide the card in: its picture, else its icon, else a plain one."""
    for candidate in (card.picture, card.main_icon):
        if candidate is not None and (bare := strip_cards(candidate)) is not None:
            return bare
    return blank_picture()


def strip_cards(data: bytes) -> bytes | None:
    """The PNG without any card in it; None when it is no PNG, or not a whole one."""
    try:
        png = read_png(data)
    except CardError:
        return None
    ours = [chunk for chunk in png.chunks if (text := read_text(chunk)) and _is_ours(text)]
    return png.without(ours).to_bytes() if png.complete else None


@cache
def blank_picture() -> bytes:
    """A plain upright picture, for cards that have none."""
    width, height = 400, 600
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes([200 - row * 120 // height]) * width for row in range(height))
    chunks = [make_chunk(b"IHDR", header), make_chunk(b"IDAT", zlib.compress(rows, 9)), make_chunk(b"IEND", b"")]
    return Png(chunks, b"", [], complete=True).with_texts([_BLANK]).to_bytes()


def _choose(texts: list[PngText], notes: list[str]) -> Document:
    """The first sound card, V3 before the others; a V3 that only repeats an older one gives way to it."""
    sound: dict[str, Document] = {}
    failure: CardError | None = None
    for keyword in _CARD_KEYWORDS:
        for text in texts:
            if text.keyword.lower() != keyword or keyword in sound:
                continue
            try:
                document = _decode(text.value)
                _ = Card.read(document)
                sound[keyword] = document
            except CardError as error:
                failure = failure or error
                notes.append(f"the {keyword!r} text was passed over: {error.what}")
    if not sound:
        raise failure or NotACard("There is no character card in this picture.", "Download the original file.")
    if len(sound) == 2:
        return older_if_unchanged(sound["ccv3"], sound["chara"])
    return next(iter(sound.values()))


def _read_assets(texts: list[tuple[Chunk, PngText]], notes: list[str]) -> tuple[dict[str, bytes], list[Chunk]]:
    files: dict[str, bytes] = {}
    chunks: list[Chunk] = []
    for chunk, text in texts:
        if not text.keyword.lower().startswith(_ASSET):
            continue
        path = text.keyword[len(_ASSET) :].removeprefix(":")
        try:
            if not is_safe_path(path) or path in RESERVED_PATHS:
                raise BrokenCard("its path leads elsewhere", "Give it another name.")
            files[path] = _unbase64(text.value)
            chunks.append(chunk)
        except BrokenCard as error:
            notes.append(f"the asset {path[:60]!r} was left in the picture: {error.what}")
    return files, chunks


def _is_ours(text: PngText) -> bool:
    keyword = text.keyword.lower()
    return keyword in _CARD_KEYWORDS or keyword.startswith(_ASSET)


def _encode(document: Document) -> bytes:
    return base64.b64encode(write_object(document))


def _decode(value: bytes) -> Document:
    bare = value.strip()
    return read_object(bare if bare.startswith(b"{") else _unbase64(bare), "The card in the picture")


def _unbase64(value: bytes) -> bytes:
    joined = b"".join(value.split())
    try:
        return base64.b64decode(joined + b"=" * (-len(joined) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BrokenCard("The text in the picture is not base64.", "Download the original file again.") from None
