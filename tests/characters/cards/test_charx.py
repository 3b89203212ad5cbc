"""S9: "CHARX: zip with `card.json`, `embeded://` (sic …) and bytes before the zip signature"."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile

import pytest

from coterie.characters.cards import Card, export_card, import_card
from coterie.characters.cards.parsing import same_document
from coterie.characters.errors import BrokenCard, CardError, CardTooBig, NotACard, UnsafeCard
from tests.characters.cards.samples import FILES, V2, V3, charx_with, packed, tiny_png


def test_s9_a_charx_gives_its_card_and_files() -> None:
    card = import_card(charx_with(V3, FILES), "a.charx").card
    assert card.files == FILES
    assert card.main_icon == FILES["assets/icon/main.png"]


@pytest.mark.parametrize("before", [b"\xff\xd8\xff JPEG", b"MZ self-extractor", tiny_png(), b"{"])
@pytest.mark.parametrize("offsets", ["from the file's start", "from the zip's start"])
def test_s9_bytes_before_the_zip_are_accepted_and_kept(before: bytes, offsets: str) -> None:
    data = charx_with(V3, FILES, before=before) if "file" in offsets else before + charx_with(V3, FILES)
    card = import_card(data, "a.jpg").card
    assert card.picture == before
    assert card.files == FILES
    assert import_card(export_card(card, "charx").data, "b").card == card


def test_s9_an_older_card_is_written_as_v3_and_restored_on_import() -> None:
    exported = export_card(Card.read(V2, FILES), "charx").data
    with zipfile.ZipFile(io.BytesIO(exported)) as archive:
        assert json.loads(archive.read("card.json"))["spec"] == "chara_card_v3"
    assert same_document(import_card(exported, "a.charx").card.document, V2)


def test_s9_a_v2_in_a_charx_is_read_as_it_is() -> None:
    assert same_document(import_card(charx_with(V2), "a.charx").card.document, V2)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/../../b", "C:/evil", "a//b", "./a", "a\\..\\b", "x" * 501]
)
def test_s9_a_path_outside_the_file_is_refused(name: str) -> None:
    with pytest.raises(UnsafeCard):
        import_card(charx_with(V3, {name: b"x"}), "a.charx")


def test_s9_a_zip_without_a_card_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(NotACard, match=r"card\.json"):
        import_card(buffer.getvalue(), "a.charx")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_s9_only_plain_compression_is_accepted(method: int) -> None:
    with pytest.raises(NotACard, match="compression"):
        import_card(charx_with(V3, method=method), "a.charx")


def test_s9_a_charx_with_a_password_is_refused() -> None:
    data = bytearray(charx_with(V3))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(NotACard, match="password"):
        import_card(bytes(data), "a.charx")


def test_s9_a_truncated_charx_is_a_clear_error() -> None:
    data = charx_with(V3, FILES)
    for length in range(0, len(data), 97):
        with pytest.raises(CardError):
            import_card(data[:length], "a.charx")


def test_s9_a_wrong_declared_size_is_detected() -> None:
    data = bytearray(charx_with(V3, {"assets/zeros": bytes(1_000_000)}))
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<I", 10)
    with pytest.raises(BrokenCard):
        import_card(bytes(data), "a.charx")


def test_s9_a_file_that_is_declared_too_big_is_refused() -> None:
    with pytest.raises(CardTooBig, match="70 MB"):
        import_card(charx_with(V3, {"assets/zeros": bytes(70_000_000)}), "a.charx")


def test_s9_too_many_files_are_refused() -> None:
    with pytest.raises(CardTooBig, match="files"):
        import_card(charx_with(V3, {f"assets/{number}": b"" for number in range(10_000)}), "a.charx")


def test_s9_a_card_that_is_mostly_blank_files_survives_its_own_export() -> None:
    """What we write must not look like a bomb to us."""
    card = Card.read(V3, {"assets/silence.wav": bytes(30_000_000)})
    assert import_card(export_card(card, "charx").data, "a.charx").card == card


def test_s9_a_broken_coterie_file_adds_only_a_note() -> None:
    imported = import_card(charx_with(V3, {**FILES, "coterie.json": b"not ours"}), "a.charx")
    assert imported.card == Card.read(V3, FILES)
    assert "coterie.json" in imported.notes[0]


@pytest.mark.parametrize("name", ["card.json", "coterie.json", "coterie/portrait.png"])
def test_s9_an_asset_cannot_replace_the_card(name: str) -> None:
    data = tiny_png(("chara", base64.b64encode(packed(V2))), (f"chara-ext-asset_:{name}", base64.b64encode(b"evil")))
    imported = import_card(data, "a.png")
    assert imported.card.files == {}
    assert import_card(export_card(imported.card, "charx").data, "b").card == imported.card


def test_s9_a_long_older_card_survives_its_own_export() -> None:
    """It is written twice, and packs so well that it could pass for a bomb."""
    card = Card.read({**V2, "long": "a" * 25_000_000})
    assert import_card(export_card(card, "charx").data, "a.charx").card == card


def test_s9_what_would_be_too_big_to_import_again_is_not_exported() -> None:
    card = Card.read(V3, {"assets/a": bytes(40_000_000), "assets/b": bytes(40_000_000)})
    assert import_card(export_card(card, "charx").data, "a.charx").card == card
    with pytest.raises(CardTooBig, match="107 MB"):
        export_card(card, "png")


def test_writing_a_charx_is_deterministic() -> None:
    card = Card.read(V2, FILES, tiny_png())
    assert export_card(card, "charx").data == export_card(card, "charx").data
