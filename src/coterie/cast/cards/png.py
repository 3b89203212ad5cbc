"""The chunks of a PNG, in which cards hide. Reading forgives a wrong checksum or a cut end and says so; writing
touches nothing but the card: every other chunk and every pixel keeps its bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from coterie.cast.cards.limits import MAX_JSON_BYTES, MAX_PNG_CHUNKS
from coterie.cast.errors import BrokenCard, CardTooBig

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
