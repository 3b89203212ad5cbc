"""Mutations that damage a card in its bytes, its structure or on purpose; seeded, so that failures are reproducible."""

from __future__ import annotations

import base64
import copy
import io
import json
import random
import struct
import zipfile
import zlib
from functools import cache
from typing import Any

from coterie.characters.cards.import_export import PNG_SIGNATURE, make_chunk
from coterie.characters.cards.parsing import Document
from tests.characters.cards.samples import (
    FILES,
    V1,
    V2,
    V3,
    charx_with,
    itxt_png,
    packed,
    png_with,
    shared_cards,
    tiny_png,
)

JPEG = b"\xff\xd8\xff\xe0 a small picture \xff\xd9"

SEEDS: list[bytes] = [
    packed(V1),
    packed(V2),
    packed(V3),
    png_with(V1),
    png_with(V2),
    png_with(V3, "ccv3"),
    itxt_png(V3, compressed=True),
    itxt_png(V3, compressed=False),
    tiny_png(
        ("chara", base64.b64encode(packed(V2))),
        ("ccv3", base64.b64encode(packed(V3))),
        ("chara-ext-asset_:assets/happy.bin", base64.b64encode(FILES["assets/happy.bin"])),
    ),
    charx_with(V3, FILES),
    charx_with(V2),
    charx_with(V3, FILES, before=JPEG),
    charx_with(V3, FILES, method=zipfile.ZIP_STORED),
    *(data for path in shared_cards() if len(data := path.read_bytes()) < 10_000),
]

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1e308,
    "",
    "\ud800",
    "\0",
    "{{" * 50,
    "@@depth " + "9" * 40,
    "(" * 300,
    "(a+)+$",
    "(?:(?:a{999}){999}){999}",
    "x" * 10_000,
    [],
    [None],
    [[[]]],
    {},
    {"": {}},
    {"entries": 5},
    ["../../x"],
    "embeded://../../etc/passwd",
    "data:image/png;base64,!!!",
]


def mutated(number: int) -> bytes:
    chance = random.Random(number)
    kinds = [_bytes, _bytes, _structure, _structure, _png_structure, _zip_structure, _container, _bomb, _deep]
    return chance.choice(kinds)(chance)


def _bytes(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.choice([1, 1, 2, 5, 30])):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                del data[at : at + chance.choice([1, 4, 12, 100])]
            case 2:
                data[at:at] = chance.randbytes(chance.choice([1, 4, 12, 100]))
            case 3:
                data[at : at + 4] = struct.pack(">I", chance.choice([0, 1, 2**31, 2**32 - 1, len(data)]))
            case 4:
                data[at : at + 4] = struct.pack("<I", chance.choice([0, 1, 2**31, 2**32 - 1, len(data)]))
            case _:
                del data[max(at, 10) :]
    return bytes(data)


def _structure(chance: random.Random) -> bytes:
    """Odd values in the places of right ones, in any container."""
    document = copy.deepcopy(chance.choice([V1, V2, V3]))
    for _ in range(chance.choice([1, 2, 6])):
        _spoil(document, chance)
    data: bytes
    match chance.randrange(4):
        case 0:
            data = png_with(document, chance.choice(["chara", "ccv3", "CHARA"]))
        case 1:
            data = charx_with(document, FILES)
        case 2:
            data = itxt_png(document, compressed=True)
        case _:
            data = packed(document)
    return data


def _spoil(document: Document, chance: random.Random) -> None:
    node: Any = document
    while True:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not places:
            return
        place = chance.choice(places)
        if isinstance(node[place], dict | list) and node[place] and chance.random() < 0.8:
            node = node[place]
            continue
        if isinstance(node, dict) and chance.random() < 0.3:
            del node[place]
        else:
            node[place] = copy.deepcopy(chance.choice(ODD))
        return


def _png_structure(chance: random.Random) -> bytes:
    card = base64.b64encode(packed(V2))
    chunks = [
        make_chunk(b"IHDR", bytes(13)).raw,
        make_chunk(b"tEXt", b"chara\0" + card).raw,
        make_chunk(b"IEND", b"").raw,
    ]
    odd = [
        make_chunk(b"tEXt", b"chara").raw,
        make_chunk(b"tEXt", b"ccv3\0" + card[: len(card) // 2]).raw,
        make_chunk(b"tEXt", b"ccv3\0" + card.replace(b"e", b"*")).raw,
        make_chunk(b"tEXt", b"ccv3\0" + base64.b64encode(b"\xff\xfe\x00")).raw,
        make_chunk(
            b"iTXt", b"ccv3\0\x01\x00\0\0" + zlib.compress(b"A" * 80_000_000, 9)[: chance.choice([50, 10**9])]
        ).raw
        if chance.random() < 0.005
        else b"",
        make_chunk(b"iTXt", b"ccv3\0\x01\x09").raw,
        make_chunk(b"zTXt", b"chara\0\0" + b"not packed").raw,
        make_chunk(b"tEXt", b"chara-ext-asset_:../../../../tmp/evil\0" + card).raw,
        make_chunk(b"tEXt", b"chara-ext-asset_:/etc/passwd\0****").raw,
        make_chunk(b"tEXt", b"\xff\xff\0\xff").raw,
        struct.pack(">I", chance.choice([2**32 - 1, 5, 0])) + b"tEXt" + b"chara\0",
        make_chunk(b"tEXt", b"x\0y").raw[:-4] + b"\0\0\0\0",
        make_chunk(b"xxXX", b"").raw * chance.choice([1, 60_000]),
    ]
    for _ in range(chance.randrange(1, 5)):
        chunks.insert(chance.randrange(len(chunks) + 1), chance.choice(odd))
    return PNG_SIGNATURE + b"".join(chunks)


def _zip_structure(chance: random.Random) -> bytes:
    """Headers that lie: sizes, methods, flags and offsets in the directory or before a file."""
    data = bytearray(charx_with(V3, FILES, before=chance.choice([b"", JPEG])))
    for _ in range(chance.randrange(1, 4)):
        signature, size = chance.choice([(b"PK\x01\x02", 46), (b"PK\x03\x04", 30), (b"PK\x05\x06", 22)])
        spots = [at for at in range(len(data)) if data[at : at + 4] == signature]
        if spots:
            at = chance.choice(spots) + chance.randrange(4, size)
            data[at : at + 2] = chance.choice(
                [b"\0\0", b"\xff\xff", b"\x01\0", b"\x0c\0", b"\x0e\0", chance.randbytes(2)]
            )
    return bytes(data)


def _container(chance: random.Random) -> bytes:
    """Names that lead elsewhere, and zips that are not quite a CHARX."""
    names = ["../evil", "/etc/passwd", "a/../../evil", "C:\\evil", "..\\evil", "a//b", "\x01", "card.json/", "x" * 600]
    match chance.randrange(4):
        case 0:
            return charx_with(V3, {chance.choice(names): b"evil"})
        case 1:
            return charx_with(
                V3, {f"assets/{number}": b"" for number in range(11_000 if chance.random() < 0.02 else 50)}
            )
        case 2:
            return charx_with(
                V3, {"coterie.json": chance.choice([b"", b"[]", b'{"original": 5}', b'{"original": {}}'])}
            )
        case _:
            return charx_with(chance.choice(ODD), method=chance.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))


def _bomb(chance: random.Random) -> bytes:
    size, count = chance.choice([(10**5, 1), (10**6, 1), (10**6, 40), (70 * 10**6, 1)])
    data = bytearray(_zeros(size, count, in_card=chance.random() < 0.3))
    if chance.random() < 0.5:
        # The directory claims less than there is.
        at = data.find(b"PK\x01\x02", chance.randrange(len(data))) + 24
        data[at : at + 4] = struct.pack("<I", chance.choice([0, 10, 1000]))
    return bytes(data)


@cache
def _zeros(size: int, count: int, *, in_card: bool) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("card.json", b" " * size if in_card else packed(V3))
        for number in range(count):
            archive.writestr(f"assets/{number}", bytes(size))
    return buffer.getvalue()


def _deep(chance: random.Random) -> bytes:
    depth = chance.choice([90, 99, 101, 900, 5_000, 100_000])
    opening, closing = chance.choice([("[", "]"), ('{"a":', "}")])
    nested = opening * depth + "1" + closing * depth
    many = "[" + "[]," * (400_000 if chance.random() < 0.02 else 2_000) + "1]"
    huge = chance.choice([nested, nested[: depth * 2], "9" * 5_000, "1e999", "NaN", many, '"\\ud83d"'])
    text = json.dumps(V2)[:-1] + f', "x": {huge}}}'
    return text.encode() if chance.random() < 0.5 else tiny_png(("chara", base64.b64encode(text.encode())))
