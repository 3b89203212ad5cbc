"""Import and export card files: JSON, PNG and CHARX. The format is detected from the content, not from the name."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Literal, NamedTuple, get_args

from coterie.characters.cards.card import Card, CardFormat, ImportedCard, as_v2, as_v3, backfill, older_if_unchanged
from coterie.characters.cards.parsing import (
    CARD_FILE,
    COTERIE_FILE,
    MAX_FILE_BYTES,
    MAX_JSON_BYTES,
    MAX_PNG_CHUNKS,
    MAX_ZIP_ENTRIES,
    MAX_ZIP_ENTRY_BYTES,
    MAX_ZIP_RATIO,
    MAX_ZIP_TOTAL_BYTES,
    PORTRAIT_FILE,
    RESERVED_PATHS,
    ZIP_RATIO_ALLOWANCE,
    Document,
    is_safe_path,
    read_object,
    write_object,
)
from coterie.characters.errors import BrokenCard, CardError, CardTooBig, NotACard, UnsafeCard

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TEXT_BYTES = MAX_JSON_BYTES * 2
"""The limit of a decompressed text, which may be base64."""
_MAX_KEYWORD = 1_000
"""PNG allows 79 bytes, but paths of assets are longer."""
_MAX_NOTES = 20


class Chunk(NamedTuple):
    kind: bytes
    body: bytes
    raw: bytes
    """With length and checksum, as in the file."""


class PngText(NamedTuple):
    keyword: str
    value: bytes


class Png(NamedTuple):
    chunks: list[Chunk]
    rest: bytes
    """The bytes after the last chunk."""
    notes: list[str]
    complete: bool

    def without(self, unwanted: Iterable[Chunk]) -> Png:
        removed = {id(chunk) for chunk in unwanted}
        return self._replace(chunks=[chunk for chunk in self.chunks if id(chunk) not in removed])

    def with_texts(self, texts: Iterable[PngText]) -> Png:
        """The picture with more text chunks, right before its end."""
        new = [_text_chunk(text) for text in texts]
        end = next((index for index, chunk in enumerate(self.chunks) if chunk.kind == b"IEND"), len(self.chunks))
        return self._replace(chunks=[*self.chunks[:end], *new, *self.chunks[end:]])

    def to_bytes(self) -> bytes:
        return PNG_SIGNATURE + b"".join(chunk.raw for chunk in self.chunks) + self.rest


def read_png(data: bytes) -> Png:
    """Accepts wrong checksums and a truncated end, with a note."""
    if not data.startswith(PNG_SIGNATURE):
        raise BrokenCard("This is not a PNG picture.", "Save the card again as a PNG.")
    chunks: list[Chunk] = []
    notes: list[str] = []
    position = len(PNG_SIGNATURE)
    while position < len(data):
        if len(chunks) >= MAX_PNG_CHUNKS:
            raise CardTooBig(
                f"The picture has more than {MAX_PNG_CHUNKS:,} chunks.", "Save it again with an image program."
            )
        if position + 12 > len(data):
            break
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        body, checksum = data[position + 8 : end - 4], int.from_bytes(data[end - 4 : end], "big")
        if zlib.crc32(body, zlib.crc32(kind)) != checksum:
            notes.append(f"the checksum of a {kind.decode('latin-1')!r} chunk at byte {position} is wrong")
        chunks.append(Chunk(kind, body, data[position:end]))
        position = end
        if kind == b"IEND":
            break
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"{len(notes) - _MAX_NOTES} more chunks have a wrong checksum"]
    complete = bool(chunks) and chunks[-1].kind == b"IEND"
    if not complete:
        notes.append(f"the picture is cut off at byte {position}")
    return Png(chunks, data[position:], notes, complete)


class TextReader:
    """Reads the texts of one picture. A text that is too large when decompressed, also with others, is left out."""

    def __init__(self) -> None:
        self._remaining = 2 * _TEXT_BYTES

    def read(self, chunk: Chunk) -> PngText | None:
        """The text of a chunk; None if it has none that can be read."""
        keyword, body = _split_text(chunk)
        if not keyword:
            return None
        try:
            match chunk.kind:
                case b"tEXt":
                    return PngText(keyword, body)
                case b"zTXt" if body[:1] == b"\0":
                    return PngText(keyword, self._inflate(body[1:]))
                case b"iTXt" if len(body) >= 2:
                    compressed, method = body[0], body[1]
                    _language, _, rest = body[2:].partition(b"\0")
                    _translated, _, value = rest.partition(b"\0")
                    if compressed and method == 0:
                        value = self._inflate(value)
                    return PngText(keyword, value)
        except (zlib.error, ValueError):
            return None
        return None

    def _inflate(self, packed: bytes) -> bytes:
        limit = min(_TEXT_BYTES, self._remaining)
        if limit <= 0:
            raise ValueError("too much text when decompressed")
        stream = zlib.decompressobj()
        value = stream.decompress(packed, limit)
        self._remaining -= len(value)
        if stream.unconsumed_tail:
            raise ValueError("a text that is too large when decompressed")
        return value


def _split_text(chunk: Chunk) -> tuple[str, bytes]:
    """The keyword of a text chunk, and what follows it; an empty keyword if it is another chunk."""
    if chunk.kind not in (b"tEXt", b"zTXt", b"iTXt"):
        return "", b""
    keyword, separator, body = chunk.body.partition(b"\0")
    return (_keyword(keyword), body) if separator and len(keyword) <= _MAX_KEYWORD else ("", b"")


def _keyword(raw: bytes) -> str:
    """PNG specifies Latin-1, but programs write asset paths in UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _text_chunk(text: PngText) -> Chunk:
    return make_chunk(b"tEXt", text.keyword.encode() + b"\0" + text.value)


def make_chunk(kind: bytes, body: bytes) -> Chunk:
    checksum = zlib.crc32(body, zlib.crc32(kind))
    return Chunk(kind, body, struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum))


_CARD_KEYWORDS = ("ccv3", "chara")
"""The chunks with the card as base64 of JSON: `ccv3`, which takes precedence, and `chara` for programs without V3."""
_ASSET = "chara-ext-asset_"
_BLANK = PngText("coterie", b"a blank picture: this card has none")


def read_png_card(data: bytes) -> ImportedCard:
    png = read_png(data)
    reader = TextReader()
    # Other texts are not even decompressed.
    chunks = [chunk for chunk in png.chunks if _is_of_interest(_split_text(chunk)[0])]
    texts = [(chunk, text) for chunk in chunks if (text := reader.read(chunk))]
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
    """The picture to put the card into: its own, else its icon, else a blank one."""
    for candidate in (card.picture, card.main_icon):
        if candidate is not None and (bare := strip_cards(candidate)) is not None:
            return bare
    return blank_picture()


def strip_cards(data: bytes) -> bytes | None:
    """The PNG without a card; None if it is not a complete PNG."""
    try:
        png = read_png(data)
    except CardError:
        return None
    card_chunks = [chunk for chunk in png.chunks if _is_card_keyword(_split_text(chunk)[0])]
    return png.without(card_chunks).to_bytes() if png.complete else None


@cache
def blank_picture() -> bytes:
    """A plain portrait picture, for cards without one."""
    width, height = 400, 600
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes([200 - row * 120 // height]) * width for row in range(height))
    chunks = [make_chunk(b"IHDR", header), make_chunk(b"IDAT", zlib.compress(rows, 9)), make_chunk(b"IEND", b"")]
    return Png(chunks, b"", [], complete=True).with_texts([_BLANK]).to_bytes()


def _choose(texts: list[PngText], notes: list[str]) -> Document:
    """The first valid card, V3 before others; the older one if the V3 card is only its conversion."""
    valid: dict[str, Document] = {}
    failure: CardError | None = None
    for keyword in _CARD_KEYWORDS:
        for text in texts:
            if text.keyword.lower() != keyword or keyword in valid:
                continue
            try:
                document = _decode(text.value)
                _ = Card.read(document)
                valid[keyword] = document
            except CardError as error:
                failure = failure or error
                notes.append(f"the {keyword!r} text was skipped: {error.what}")
    if not valid:
        raise failure or NotACard("There is no character card in this picture.", "Download the original file.")
    if len(valid) == 2:
        return older_if_unchanged(valid["ccv3"], valid["chara"])
    return next(iter(valid.values()))


def _read_assets(texts: list[tuple[Chunk, PngText]], notes: list[str]) -> tuple[dict[str, bytes], list[Chunk]]:
    files: dict[str, bytes] = {}
    chunks: list[Chunk] = []
    for chunk, text in texts:
        if not text.keyword.lower().startswith(_ASSET):
            continue
        path = text.keyword[len(_ASSET) :].removeprefix(":")
        try:
            if not is_safe_path(path) or path in RESERVED_PATHS:
                raise BrokenCard("its path is not allowed", "Rename it.")
            files[path] = _unbase64(text.value)
            chunks.append(chunk)
        except BrokenCard as error:
            notes.append(f"the asset {path[:60]!r} was left in the picture: {error.what}")
    return files, chunks


def _is_card_keyword(keyword: str) -> bool:
    keyword = keyword.lower()
    return keyword in _CARD_KEYWORDS or keyword.startswith(_ASSET)


def _is_of_interest(keyword: str) -> bool:
    return _is_card_keyword(keyword) or keyword == _BLANK.keyword


def _encode(document: Document) -> bytes:
    return base64.b64encode(write_object(document))


def _decode(value: bytes) -> Document:
    text = value.strip()
    return read_object(text if text.startswith(b"{") else _unbase64(text), "The card in the picture")


def _unbase64(value: bytes) -> bytes:
    joined = b"".join(value.split())
    try:
        return base64.b64decode(joined + b"=" * (-len(joined) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BrokenCard("The text in the picture is not base64.", "Download the original file again.") from None


_DIRECTORY_ENTRY = b"PK\x01\x02"
_EARLIEST_DATE = (1980, 1, 1, 0, 0, 0)
# zipfile trusts the headers of a damaged archive; each of these was raised by one.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
    OSError,
    struct.error,
)


class _Archive(NamedTuple):
    before: bytes
    files: dict[str, bytes]


def looks_like_zip(data: bytes) -> bool:
    return data.startswith(b"PK\x03\x04") or _DIRECTORY_ENTRY in data


def read_charx(data: bytes) -> ImportedCard:
    """A zip with `card.json` and its assets, sometimes appended to a JPEG.

    It is untrusted: nothing is unpacked to disk, only two compression methods are accepted, and sizes are checked as
    declared and again as read.
    """
    archive = _unpack(data)
    files = archive.files
    text = files.pop(CARD_FILE, None)
    if text is None:
        raise NotACard(
            "There is no `card.json` in this file: it is a zip, but not a CHARX.", "Export it again as CHARX."
        )
    document = read_object(text, "The card in the CHARX")
    picture = archive.before or None
    notes: list[str] = []
    if COTERIE_FILE in files:
        document, portrait = _read_original(document, files, notes)
        picture = portrait or picture
    return ImportedCard(Card.read(document, files, picture), "charx", notes)


def write_charx(card: Card) -> bytes:
    """The card with its files. A JPEG goes before the zip; a PNG becomes one of the files."""
    extension: Document = {}
    if card.generation < 3:
        extension["original"] = card.document
    portrait = card.picture if card.picture and card.picture.startswith(PNG_SIGNATURE) else None
    if portrait:
        extension["portrait"] = PORTRAIT_FILE
    buffer = io.BytesIO()
    if card.picture and not portrait:
        buffer.write(card.picture)
    with zipfile.ZipFile(buffer, "w") as archive:
        _add(archive, CARD_FILE, write_object(as_v3(card), pretty=True), zipfile.ZIP_DEFLATED)
        if extension:
            _add(archive, COTERIE_FILE, write_object(extension), zipfile.ZIP_DEFLATED)
        if portrait:
            _add(archive, PORTRAIT_FILE, portrait, zipfile.ZIP_STORED)
        for path, content in card.files.items():
            # Pictures and sounds are compressed already, and a compressed blank one would look like a zip bomb.
            _add(archive, path, content, zipfile.ZIP_STORED)
    return buffer.getvalue()


def _read_original(document: Document, files: dict[str, bytes], notes: list[str]) -> tuple[Document, bytes | None]:
    """The card and picture from before the conversion to CHARX, from our own file in the archive."""
    text, portrait = files.pop(COTERIE_FILE), files.pop(PORTRAIT_FILE, None)
    try:
        original = read_object(text, "coterie.json").get("original")
    except CardError as error:
        notes.append(f"coterie.json was left out: {error.what}")
        return document, portrait
    return older_if_unchanged(document, original) if isinstance(original, dict) else document, portrait


def _unpack(data: bytes) -> _Archive:
    if data.count(_DIRECTORY_ENTRY) > MAX_ZIP_ENTRIES:
        raise CardTooBig(
            f"There are more than {MAX_ZIP_ENTRIES:,} files in this CHARX.", "Remove files that are not needed."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [info for info in archive.infolist() if not info.is_dir()]
            _check(entries, len(data))
            start = min((info.header_offset for info in archive.infolist()), default=0)
            return _Archive(data[:start], {info.filename: _read(archive, info) for info in entries})
    except _DAMAGED as error:
        raise BrokenCard(f"The CHARX is damaged: {error}.", "Download it again, or export it again.") from None


def _check(entries: list[zipfile.ZipInfo], size: int) -> None:
    for info in entries:
        if not is_safe_path(info.filename):
            raise UnsafeCard(
                f"A file in this CHARX is named {info.filename[:80]!r}, which leads out of it.",
                "Do not use this file; ask its author for an intact one.",
            )
        if info.flag_bits & 1:
            raise NotACard("This CHARX is locked with a password.", "Export it again without one.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotACard(
                "This CHARX uses a compression method that is not supported.", "Compress it again as a plain zip."
            )
        limit = MAX_JSON_BYTES if info.filename in (CARD_FILE, COTERIE_FILE) else MAX_ZIP_ENTRY_BYTES
        if info.file_size > limit:
            raise CardTooBig(
                f"{info.filename[:80]!r} in this CHARX unpacks to {info.file_size / 1e6:.0f} MB; "
                f"at most {limit / 1e6:.0f} MB are allowed.",
                "Remove it, or make it smaller.",
            )
    # Texts compress far better than pictures, and have their own limit.
    total = sum(info.file_size for info in entries if info.filename not in (CARD_FILE, COTERIE_FILE))
    if total > min(MAX_ZIP_TOTAL_BYTES, size * MAX_ZIP_RATIO + ZIP_RATIO_ALLOWANCE):
        raise UnsafeCard(
            f"This CHARX of {size / 1e6:.1f} MB would unpack to {total / 1e6:.0f} MB.",
            "It may be a zip bomb; do not use this file.",
        )


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as packed:
        content = packed.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise zipfile.BadZipFile(f"{info.filename[:80]!r} is not as long as the archive says")
    return content


def _add(archive: zipfile.ZipFile, path: str, content: bytes, method: int) -> None:
    info = zipfile.ZipInfo(path, _EARLIEST_DATE)
    info.compress_type = method
    archive.writestr(info, content)


_JPEG = b"\xff\xd8\xff"


def import_card(data: bytes, file_name: str) -> ImportedCard:
    """The card in a file of any format; `CardError` if there is none."""
    check_size(len(data))
    card, kind, notes = _read_card(data, file_name)
    if card.is_newer:
        notes.append(f"made for a newer card version ({card.spec_version:g}); its new fields are kept but not used")
    # An exported PNG without a picture shows the card's icon, which is not a picture of its own.
    bare = Card.read(card.document, card.files)
    if card.picture is not None and bare.main_icon and strip_cards(bare.main_icon) == card.picture:
        card = bare
    return ImportedCard(card, kind, notes)


def check_size(size: int) -> None:
    """Raise `CardTooBig` for a file that is too large; call it before reading the file into memory."""
    if size >= MAX_FILE_BYTES:
        raise CardTooBig(
            f"The file has {size / 1e6:.0f} MB; a card must be smaller than {MAX_FILE_BYTES / 1e6:.0f} MB.",
            "Remove assets, or make them smaller.",
        )


def _read_card(data: bytes, file_name: str) -> ImportedCard:
    if data.startswith(PNG_SIGNATURE):
        try:
            return read_png_card(data)
        except NotACard:
            # A CHARX may be appended to a PNG; bytes that look like a zip may also be there by chance.
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
            f"{file_name or 'The file'} is not a card in a known format.",
            "Cards are JSON, PNG or CHARX files.",
        )
    return ImportedCard(Card.read(read_object(data, "The card")), "json", [])


CardVersion = Literal["v2", "v3"]


class ExportedCard(NamedTuple):
    data: bytes
    left_behind: list[str]
    """What the format cannot contain."""


def export_card(card: Card, kind: CardFormat, version: CardVersion | None = None) -> ExportedCard:
    """Export a card; importing it again gives the same card. JSON keeps the card's own version unless one is given.

    What would be too big to be imported again is refused: base64 in a PNG takes a third more than a CHARX.
    """
    data, left_behind = _write(card, kind, version)
    check_size(len(data))
    return ExportedCard(data, left_behind)


def format_of(file_name: str) -> CardFormat:
    """The format for the suffix of a file name."""
    endings: dict[str, CardFormat] = {kind: kind for kind in get_args(CardFormat)}
    if kind := endings.get(file_name.rsplit(".", 1)[-1].lower()):
        return kind
    raise NotACard(f"{file_name} has no suffix of a known format.", "End it in .json, .png or .charx.")


def _write(card: Card, kind: CardFormat, version: CardVersion | None) -> tuple[bytes, list[str]]:
    match kind:
        case "json":
            document = card.document if version is None else as_v2(card) if version == "v2" else as_v3(card)
            return write_object(document, pretty=True) + b"\n", _only_in_containers(card)
        case "png":
            lost = (
                ["the picture, which is not a PNG"]
                if card.picture and not card.picture.startswith(PNG_SIGNATURE)
                else []
            )
            return write_png_card(card), lost
        case "charx":
            return write_charx(card), []


def _only_in_containers(card: Card) -> list[str]:
    lost = [f"{len(card.files)} embedded files"] if card.files else []
    return [*lost, "the picture"] if card.picture else lost
