"""Sample cards: small ones, generated ones for property tests, and files that contain them."""

from __future__ import annotations

import base64
import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from coterie.characters.cards.import_export import Chunk, Png, blank_picture, make_chunk, read_png
from coterie.characters.cards.parsing import Document

SHARED = Path(__file__).parents[3] / "shared" / "data" / "cards"

V1: Document = {
    "name": "Ada",
    "description": "{{char}} keeps the lighthouse.",
    "personality": "patient, dry, curious",
    "scenario": "A storm is coming.",
    "first_mes": "Come in, quick!",
    "mes_example": "<START>\n{{user}}: Hello?\n{{char}}: Mind the stairs.",
    "talkativeness": "0.5",
}

V2: Document = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        "name": "Ada",
        "description": "Keeps the lighthouse.",
        "personality": "patient",
        "scenario": "A storm.",
        "first_mes": "Come in!",
        "mes_example": "",
        "creator_notes": "SECRET-NOTES",
        "system_prompt": "Be brief.",
        "post_history_instructions": "Stay in character.",
        "alternate_greetings": ["Who is there?"],
        "tags": ["SECRET-TAG"],
        "creator": "SECRET-CREATOR",
        "character_version": "SECRET-VERSION",
        "extensions": {"depth_prompt": {"prompt": "x", "depth": 4}, "other/app": [1, 2.0, None, True]},
        "character_book": {
            "name": "The coast",
            "extensions": {"a": 1},
            "unknown_in_book": "kept",
            "entries": [
                {
                    "keys": ["lamp"],
                    "content": "The lamp burns whale oil.",
                    "enabled": True,
                    "insertion_order": 10,
                    "extensions": {"deep": {"er": []}},
                    "unknown_in_entry": 7,
                }
            ],
        },
        "unknown_in_data": {"kept": True},
    },
    "unknown_at_top": "kept",
}

V3: Document = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **V2["data"],
        "nickname": "Lamp",
        "group_only_greetings": ["Hello, all."],
        "creator_notes_multilingual": {"de": "Hallo"},
        "source": ["https://example.com/ada"],
        "creation_date": 1700000000,
        "assets": [
            {"type": "icon", "uri": "embeded://assets/icon/main.png", "name": "main", "ext": "png"},
            {"type": "emotion", "uri": "__asset:assets/happy.bin", "name": "happy", "ext": "bin", "weight": 3},
        ],
    },
}

FILES = {"assets/icon/main.png": blank_picture() + b"tail", "assets/happy.bin": bytes(range(256))}


def packed(document: Document) -> bytes:
    return json.dumps(document).encode()


def tiny_png(*texts: tuple[str, bytes], trailing: bytes = b"") -> bytes:
    """A real picture of one pixel with some foreign chunks in it, and texts after the pixels."""
    header = bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0])
    chunks: list[Chunk] = [
        make_chunk(b"IHDR", header),
        make_chunk(b"tEXt", b"Title\0A lighthouse"),
        make_chunk(b"IDAT", zlib.compress(b"\0\x80")),
        *(make_chunk(b"tEXt", keyword.encode() + b"\0" + value) for keyword, value in texts),
        make_chunk(b"IEND", b""),
    ]
    return Png(chunks, trailing, [], complete=True).to_bytes()


def png_with(document: Document, keyword: str = "chara") -> bytes:
    return tiny_png((keyword, base64.b64encode(packed(document))))


def itxt_png(document: Document, *, compressed: bool) -> bytes:
    value = base64.b64encode(packed(document))
    body = b"CCV3\0" + bytes([compressed, 0]) + b"en\0translated\0" + (zlib.compress(value) if compressed else value)
    png = read_png(tiny_png())
    return png._replace(chunks=[*png.chunks[:-1], make_chunk(b"iTXt", body), png.chunks[-1]]).to_bytes()


def charx_with(document: Document, files: dict[str, bytes] | None = None, before: bytes = b"", **how: Any) -> bytes:
    buffer = io.BytesIO()
    buffer.write(before)
    with zipfile.ZipFile(buffer, "w", how.get("method", zipfile.ZIP_DEFLATED)) as archive:
        archive.writestr("card.json", packed(document))
        for path, content in (files or {}).items():
            archive.writestr(path, content)
    return buffer.getvalue()


def shared_cards() -> list[Path]:
    return sorted(SHARED.iterdir()) if SHARED.is_dir() else []


# What JSON can hold, half characters included, as cut-off emoji in real cards do.
texts = st.text(st.characters(codec=None), max_size=12)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(texts.map(lambda text: f"x_{text}"), values, max_size=3)
loose_text = texts | st.none() | st.integers() | st.booleans()
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=12)
paths = st.lists(
    st.text("abcdefghij ä漢._-0123", min_size=1, max_size=8).filter(lambda part: part not in (".", "..")),
    min_size=1,
    max_size=3,
).map("/".join)
files = st.dictionaries(paths.map(lambda path: f"assets/{path}"), st.binary(max_size=40), max_size=3)


def _mixed(known: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Document]:
    """An object in which each known field may be missing, beside fields nobody knows."""
    return st.builds(lambda some, more: {**more, **some}, st.fixed_dictionaries({}, optional=known), unknown)


entries = _mixed(
    {
        "keys": st.lists(loose_text, max_size=3) | texts,
        "secondary_keys": st.lists(texts, max_size=2) | texts,
        "content": loose_text | st.just("@@depth 2\n@@@role user\nLore"),
        "enabled": values,
        "insertion_order": values,
        "priority": values,
        "position": st.sampled_from(["before_char", "after_char", 4, None]),
        "id": values,
        "extensions": unknown | st.none(),
    }
)
books = _mixed(
    {
        "scan_depth": values,
        "token_budget": values,
        "recursive_scanning": values,
        "extensions": unknown,
        "entries": st.lists(entries | st.none(), max_size=3) | st.dictionaries(texts, entries, max_size=2),
    }
)
flat_fields = {
    "description": loose_text,
    "personality": loose_text,
    "scenario": loose_text,
    "first_mes": loose_text,
    "mes_example": loose_text,
}
data_fields = {
    **flat_fields,
    "creator_notes": loose_text,
    "system_prompt": loose_text,
    "alternate_greetings": st.lists(loose_text, max_size=2) | st.none(),
    "group_only_greetings": st.lists(loose_text, max_size=2),
    "tags": st.lists(texts, max_size=2) | texts | st.none(),
    "nickname": loose_text,
    "character_version": loose_text,
    "character_book": books | st.none(),
    "assets": st.lists(_mixed({"type": texts, "uri": texts | paths.map("embeded://assets/{}".format)}), max_size=2),
    "extensions": unknown | st.none(),
}


def _data(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Document]:
    return st.builds(lambda some, name: {**some, "name": name}, _mixed(fields), names)


v1_documents = st.builds(lambda some, first: {**some, "first_mes": first}, _data(flat_fields), loose_text)
later_documents = st.builds(
    lambda top, data, spec: {**top, "spec": spec[0], "spec_version": spec[1], "data": data},
    unknown,
    _data(data_fields),
    st.sampled_from(
        [
            ("chara_card_v2", "2.0"),
            ("chara_card_v2", 2),
            ("chara_card_v3", "3.0"),
            ("chara_card_v3", "3.7"),
            ("chara_card_v4", "4.0"),
        ]
    ),
)
documents = v1_documents | later_documents
