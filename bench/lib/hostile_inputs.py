"""Inputs made to be slow or large: texts, card files, chats and memory exports that a stranger may send.

The tests run every parser of text over `TEXTS`; `bench.abuse` sends the files to a running server. Each function takes
a size, so that a test can use a small one.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator

TEXT_CHARS = 200_000

TEXTS: dict[str, Callable[[int], str]] = {
    "opening brackets": lambda size: "(" * size,
    "pairs of opening brackets": lambda size: "((" * (size // 2),
    "pairs of opening brackets with spaces": lambda size: "(( " * (size // 3),
    "closing brackets": lambda size: "))" * (size // 2),
    "nested brackets": lambda size: "(" * (size // 2) + ")" * (size // 2),
    "square brackets": lambda size: "[" * size,
    "braces": lambda size: "{{" * (size // 2),
    "closed braces": lambda size: "{{a}}" * (size // 5),
    "link middles": lambda size: "](" * (size // 2),
    "links": lambda size: "[a](" * (size // 4),
    "straight quotation marks": lambda size: '"' * size,
    "spaced quotation marks": lambda size: '" ' * (size // 2),
    "words in quotation marks": lambda size: '"a" ' * (size // 4),
    "opening quotation marks": lambda size: "“" * size,
    "different quotation marks": lambda size: "«„‹“" * (size // 4),
    "apostrophes": lambda size: "'" * size,
    "alternating quotation marks": lambda size: "\"'" * (size // 2),
    "stars": lambda size: "*" * size,
    "stars and letters": lambda size: "*a" * (size // 2),
    "stars, letters and spaces": lambda size: "*a " * (size // 3),
    "runs of different stars": lambda size: "a**b*c***" * (size // 9),
    "stars then underscores": lambda size: "*_" * (size // 2),
    "closing stars": lambda size: "a* " * (size // 3),
    "underscores": lambda size: "_" * size,
    "underscored words": lambda size: "_a_ " * (size // 4),
    "tildes": lambda size: "~" * size,
    "backticks": lambda size: "`" * size,
    "runs of backticks": lambda size: "".join("`" * number + " " for number in range(1, int((2 * size) ** 0.5))),
    "fences": lambda size: "```\n" * (size // 4),
    "smaller than": lambda size: "<" * size,
    "unclosed tags": lambda size: "<a " * (size // 3),
    "tags": lambda size: "<original>" * (size // 10),
    "at signs": lambda size: "@" * size,
    "mentions": lambda size: "@a " * (size // 3),
    "dots and at signs": lambda size: "a.@" * (size // 3),
    "decorator lines": lambda size: "@@activate\n" * (size // 11),
    "quoted lines": lambda size: "> " * (size // 2),
    "lines of quotes": lambda size: "> a\n" * (size // 4),
    "headings": lambda size: "# " * (size // 2),
    "hashes": lambda size: "#" * size,
    "list items": lambda size: "- " * (size // 2),
    "indented list items": lambda size: "".join(
        " " * (2 * level) + "- a\n" for level in range(max(int(size**0.5) - 2, 1))
    ),
    "dashes": lambda size: "-" * size,
    "dash lines": lambda size: "---\n" * (size // 4),
    "dots": lambda size: "." * size,
    "spaced dots": lambda size: ". " * (size // 2),
    "ellipses": lambda size: "... " * (size // 4),
    "exclamation marks": lambda size: "!" * size,
    "colons": lambda size: "::" * (size // 2),
    "slashes": lambda size: "/" * size,
    "commas": lambda size: "," * size,
    "backslashes": lambda size: "\\" * size,
    "escaped stars": lambda size: "\\*" * (size // 2),
    "ampersands": lambda size: "&" * size,
    "entities": lambda size: "&amp;" * (size // 5),
    "newlines": lambda size: "\n" * size,
    "carriage returns": lambda size: "\r" * size,
    "lines of spaces": lambda size: " \n" * (size // 2),
    "spaces": lambda size: " " * size,
    "spaces before a word": lambda size: " " * (size - 1) + "a",
    "spaces between two words": lambda size: "a" + " " * (size - 2) + "b",
    "tabs": lambda size: "\t" * size,
    "zero-width characters": lambda size: "\u200b" * size,
    "direction marks": lambda size: "\u202e" * size,
    "combining marks": lambda size: "a" + "\u0301" * (size - 1),
    "one long word": lambda size: "a" * size,
    "one long word in capitals": lambda size: "A" * size,
    "one long word without a space and a sign": lambda size: "a" * (size - 1) + "!",
    "alternating case": lambda size: "aB" * (size // 2),
    "single letters": lambda size: "a " * (size // 2),
    "single letters with dots": lambda size: "a." * (size // 2),
    "short words": lambda size: "ab cd " * (size // 6),
    "hyphenated letters": lambda size: "a-" * (size // 2),
    "digits": lambda size: "1" * size,
    "spaced digits": lambda size: "1 " * (size // 2),
    "digits with dashes": lambda size: "12-" * (size // 3),
    "digits with dots": lambda size: "12." * (size // 3),
    "hexadecimal digits": lambda size: "0f" * (size // 2),
    "hexadecimal digits with spaces": lambda size: "0f " * (size // 3),
    "base64": lambda size: "QUJD" * (size // 4),
    "sentences": lambda size: "It rains. " * (size // 10),
    "capitalised words": lambda size: "Anna Berta " * (size // 11),
    "paragraphs": lambda size: "Rain.\n\n" * (size // 7),
    "possessives": lambda size: "Anna's " * (size // 7),
    "emoji": lambda size: "😀" * size,
    "joined emoji": lambda size: "👩\u200d" * (size // 2),
    "ideographs": lambda size: "雨" * size,
    "addresses": lambda size: "https://" * (size // 8),
    "dotted names": lambda size: "a.b." * (size // 4) + "!",
    "JSON arrays": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "JSON objects": lambda size: '{"a":' * (size // 5),
    "front matter": lambda size: "---\n" + "a: b\n" * (size // 5),
    "TOML tables": lambda size: "[a" + ".a" * (size // 2) + "]",
    "TOML arrays": lambda size: "a = " + "[" * size,
}
"""By name: a text of about the given number of characters."""


def hostile_texts(size: int = TEXT_CHARS) -> Iterator[tuple[str, str]]:
    """All texts with their names."""
    for name, build in TEXTS.items():
        yield name, build(size)


_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def _png(*chunks: bytes, width: int = 1, height: int = 1) -> bytes:
    header = _png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    picture = _png_chunk(b"IDAT", zlib.compress(b"\0\0"))
    return b"".join([_PNG_SIGNATURE, header, *chunks, picture, _png_chunk(b"IEND", b"")])


def png_of_compressed_texts(size: int = 40_000_000, keyword: bytes = b"Comment", unpacked: int = 50_000_000) -> bytes:
    """A PNG of about `size` bytes full of zTXt chunks, each of which unpacks to `unpacked` bytes.

    With the keyword `chara` each claims to be a character card.
    """
    body = keyword + b"\0\0" + zlib.compress(b"\0" * unpacked, 9)
    chunk = _png_chunk(b"zTXt", body)
    return _png(chunk * max(size // len(chunk), 1))


def png_card(document: object) -> bytes:
    """A small picture with a card in it."""
    text = base64.b64encode(json.dumps(document).encode())
    return _png(_png_chunk(b"tEXt", b"chara\0" + text))


def huge_picture(width: int = 60_000, height: int = 60_000) -> bytes:
    """A small PNG whose header claims many pixels."""
    return _png(width=width, height=height)


def zip_bomb(unpacked: int = 60_000_000, files: int = 4) -> bytes:
    """A CHARX with files that compress a thousand times."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("card.json", json.dumps(card_document()))
        for number in range(files):
            archive.writestr(f"assets/{number}.bin", b"\0" * unpacked)
    return buffer.getvalue()


def zip_of_many_files(files: int = 9_000) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("card.json", json.dumps(card_document()))
        for number in range(files):
            archive.writestr(f"assets/{number}.txt", b"")
    return buffer.getvalue()


def card_document(**fields: object) -> dict[str, object]:
    """A character card (V2) with other values for some of its fields."""
    data = {
        "name": "Ada",
        "description": "Somebody.",
        "personality": "",
        "scenario": "",
        "first_mes": "Hello.",
        "mes_example": "",
        **fields,
    }
    return {"spec": "chara_card_v2", "spec_version": "2.0", "data": data}


def nested_json(depth: int = 500_000) -> bytes:
    """JSON that is nested so deeply that a recursive parser fails."""
    return b'{"data":' + b"[" * depth + b"]" * depth + b"}"


def long_field_card(size: int = 20_000_000, character: str = "((") -> bytes:
    """A card with one very long text."""
    return json.dumps(card_document(description=character * (size // len(character)))).encode()


def many_values_card(values: int = 900_000) -> bytes:
    return json.dumps(card_document(extensions={"list": [0] * values})).encode()


def slow_lorebook_card(entries: int = 200) -> bytes:
    """A card whose lorebook keys are patterns with catastrophic backtracking."""
    patterns = ("/(a+)+$/", "/(a|aa)+$/", "/(.*a){20}/", "/(?:a?){50}a{50}/", "/^(\\w+\\s?)*$/", "/(x+x+)+y/")
    book = {
        "entries": [
            {
                "keys": [patterns[number % len(patterns)].replace("$", f"{number}$")],
                "content": f"Lore {number}.",
                "enabled": True,
                "insertion_order": number,
                "use_regex": True,
                "extensions": {},
            }
            for number in range(entries)
        ],
        "extensions": {},
    }
    return json.dumps(card_document(character_book=book)).encode()


def junk_memories(size: int = 48_000_000) -> bytes:
    """A memory import of valid lines with meaningless texts, all different."""
    parts: list[bytes] = [b'{"format": "coterie-memory", "version": 1}']
    total, number = 0, 0
    while total < size:
        line = b'{"text": "junk %d", "owner": "x", "room": "room:x", "type": "observation"}' % number
        parts.append(line)
        total += len(line) + 1
        number += 1
    return b"\n".join(parts)


def junk_lines(size: int = 48_000_000, line: bytes = b"[]") -> bytes:
    """An import of lines that are no memories."""
    return (line + b"\n") * (size // (len(line) + 1))


def identical_chat(lines: int = 8_000, text: str = "Hello there.") -> bytes:
    """A SillyTavern chat of identical messages."""
    header = {"user_name": "You", "character_name": "Ada", "create_date": "2024-01-01", "chat_metadata": {}}
    message = {"name": "Ada", "is_user": False, "is_system": False, "send_date": "", "mes": text}
    return b"\n".join([json.dumps(header).encode(), *[json.dumps(message).encode()] * lines])


def multi_line_chat(lines: int = 2_000, rows: int = 50) -> bytes:
    """A SillyTavern chat of messages of many lines, each of which could be a known memory."""
    text = "\n".join(f"row {number}" for number in range(rows))
    return identical_chat(lines, text)


def huge_lorebooks(size: int = 7_500_000) -> Iterator[bytes]:
    """Lorebooks (`lorebook_v3`) of many entries, of long ones, and of many keys."""
    for count in (9_900, 20, 1):
        length = size // count // 2
        keys = ["lamp", *(f"key {number}" for number in range(length // 12 if count == 1 else 5))]
        entries = [
            {"keys": keys, "content": "lamp " * (length // 5), "enabled": True, "insertion_order": number}
            for number in range(count)
        ]
        yield json.dumps({"spec": "lorebook_v3", "data": {"recursive_scanning": True, "entries": entries}}).encode()


def huge_documents(size: int = 2_400_000) -> Iterator[tuple[str, str]]:
    """Pairs of texts that are slow to compare: all lines differ, moved lines, repeated lines, and one long line."""
    lines = [f"line {number}" for number in range(size // 14)]
    yield "\n".join(lines), "\n".join(line.upper() for line in lines)
    yield "\n".join(lines), "\n".join(reversed(lines))
    yield "a\nb\n" * (size // 4), "b\na\na\n" * (size // 6)
    yield "ab " * (size // 3), "ba " * (size // 3)
