"""CHARX: a zip with `card.json` and the assets it names, often glued behind a JPEG so that it shows as a picture.

Zips come from strangers and may lie. Nothing is unpacked to disk, only two plain methods are accepted, and every
size is checked as claimed and again as read.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import NamedTuple

from coterie.characters.cards.card import Card, ImportedCard, as_v3, older_if_unchanged
from coterie.characters.cards.parsing import (
    CARD_FILE,
    COTERIE_FILE,
    MAX_JSON_BYTES,
    MAX_ZIP_ENTRIES,
    MAX_ZIP_ENTRY_BYTES,
    MAX_ZIP_RATIO,
    MAX_ZIP_TOTAL_BYTES,
    PORTRAIT_FILE,
    ZIP_RATIO_ALLOWANCE,
    Document,
    is_safe_path,
    read_object,
    write_object,
)
from coterie.characters.cards.png import PNG_SIGNATURE
from coterie.characters.errors import BrokenCard, CardError, CardTooBig, NotACard, UnsafeCard

_DIRECTORY_ENTRY = b"PK\x01\x02"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
# zipfile trusts much of what a damaged archive says; each of these has come out of one.
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
    archive = _unpack(data)
    files = archive.files
    text = files.pop(CARD_FILE, None)
    if text is None:
        raise NotACard("There is no `card.json` in this file: it is a zip, but no CHARX.", "Export it again as CHARX.")
    document = read_object(text, "The card in the CHARX")
    picture = archive.before or None
    notes: list[str] = []
    if COTERIE_FILE in files:
        document, kept_picture = _read_original(document, files, notes)
        picture = kept_picture or picture
    return ImportedCard(Card.read(document, files, picture), "charx", notes)


def write_charx(card: Card) -> bytes:
    """The card with its files. A JPEG stands before the zip again; a PNG becomes one of the files."""
    ours: Document = {}
    if card.generation < 3:
        ours["original"] = card.document
    portrait = card.picture if card.picture and card.picture.startswith(PNG_SIGNATURE) else None
    if portrait:
        ours["portrait"] = PORTRAIT_FILE
    buffer = io.BytesIO()
    if card.picture and not portrait:
        buffer.write(card.picture)
    with zipfile.ZipFile(buffer, "w") as archive:
        _add(archive, CARD_FILE, write_object(as_v3(card), pretty=True), zipfile.ZIP_DEFLATED)
        if ours:
            _add(archive, COTERIE_FILE, write_object(ours), zipfile.ZIP_DEFLATED)
        if portrait:
            _add(archive, PORTRAIT_FILE, portrait, zipfile.ZIP_STORED)
        for path, content in card.files.items():
            # Pictures and sounds are packed already, and a packed blank one would look like a bomb.
            _add(archive, path, content, zipfile.ZIP_STORED)
    return buffer.getvalue()


def _read_original(document: Document, files: dict[str, bytes], notes: list[str]) -> tuple[Document, bytes | None]:
    """The card as it was before it was made a CHARX, and its picture; told in a file of our own beside the card,
    for which the specification leaves room."""
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
            f"There are more than {MAX_ZIP_ENTRIES:,} files in this CHARX.", "Take out what is not needed."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            wanted = [info for info in archive.infolist() if not info.is_dir()]
            _check(wanted, len(data))
            start = min((info.header_offset for info in archive.infolist()), default=0)
            return _Archive(data[:start], {info.filename: _read(archive, info) for info in wanted})
    except _DAMAGED as error:
        raise BrokenCard(f"The CHARX is damaged: {error}.", "Download it again, or export it again.") from None


def _check(wanted: list[zipfile.ZipInfo], size: int) -> None:
    for info in wanted:
        if not is_safe_path(info.filename):
            raise UnsafeCard(
                f"A file in this CHARX is named {info.filename[:80]!r}, which leads out of it.",
                "Do not use this file; ask its author for a sound one.",
            )
        if info.flag_bits & 1:
            raise NotACard("This CHARX is locked with a password.", "Export it again without one.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotACard("This CHARX is packed in a way that is not allowed.", "Pack it again as a plain zip.")
        most = MAX_JSON_BYTES if info.filename in (CARD_FILE, COTERIE_FILE) else MAX_ZIP_ENTRY_BYTES
        if info.file_size > most:
            raise CardTooBig(
                f"{info.filename[:80]!r} in this CHARX unpacks to {info.file_size / 1e6:.0f} MB; "
                f"{most / 1e6:.0f} MB is the most.",
                "Take it out, or make it smaller.",
            )
    # The texts pack far better than pictures do, and have their own limit.
    total = sum(info.file_size for info in wanted if info.filename not in (CARD_FILE, COTERIE_FILE))
    if total > min(MAX_ZIP_TOTAL_BYTES, size * MAX_ZIP_RATIO + ZIP_RATIO_ALLOWANCE):
        raise UnsafeCard(
            f"This CHARX of {size / 1e6:.1f} MB would unpack to {total / 1e6:.0f} MB.",
            "That is what a zip bomb does; do not use this file.",
        )


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as packed:
        content = packed.read(info.file_size + 1)
    if len(content) != info.file_size:
        raise zipfile.BadZipFile(f"{info.filename[:80]!r} is not as long as the archive says")
    return content


def _add(archive: zipfile.ZipFile, path: str, content: bytes, method: int) -> None:
    info = zipfile.ZipInfo(path, _EARLIEST)
    info.compress_type = method
    archive.writestr(info, content)
