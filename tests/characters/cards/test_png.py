"""S9: cards in pictures, and the picture around them."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from bench.lib.hostile_inputs import png_of_compressed_texts
from coterie.characters.cards import Card, export_card, import_card
from coterie.characters.cards.import_export import Chunk, TextReader, make_chunk, read_png
from coterie.characters.cards.parsing import same_document
from coterie.characters.errors import BrokenCard, CardError, CardTooBig, NotACard
from tests.characters.cards.samples import FILES, V1, V2, V3, itxt_png, packed, png_with, tiny_png

b64 = base64.b64encode


def texts_of(data: bytes) -> dict[str, bytes]:
    return {text.keyword: text.value for chunk in read_png(data).chunks if (text := TextReader().read(chunk))}


def test_s9_ccv3_beats_chara() -> None:
    data = tiny_png(("chara", b64(packed(V2))), ("ccv3", b64(packed(V3))))
    assert import_card(data, "a.png").card.char == "Lamp"


@pytest.mark.parametrize("keyword", ["chara", "Chara", "CHARA", "ccv3", "CCv3"])
def test_s9_keywords_are_case_insensitive(keyword: str) -> None:
    assert import_card(png_with(V2, keyword), "a.png").card.name == "Ada"


@pytest.mark.parametrize("compressed", [False, True])
def test_s9_itxt_is_read_too(compressed: bool) -> None:
    assert same_document(import_card(itxt_png(V3, compressed=compressed), "a.png").card.document, V3)


def test_s9_a_v1_card_is_read_from_pictures() -> None:
    assert same_document(import_card(png_with(V1), "a.png").card.document, V1)


def test_s9_writing_removes_both_and_inserts_both_before_the_end() -> None:
    before = tiny_png(("Chara", b64(packed(V2))), ("ccv3", b64(packed(V2))), ("Author", b"me"), trailing=b"more")
    exported = export_card(import_card(before, "a.png").card, "png").data
    png = read_png(exported)
    kinds = [(text.keyword if (text := TextReader().read(chunk)) else chunk.kind) for chunk in png.chunks]
    assert kinds == [b"IHDR", "Title", b"IDAT", "Author", "chara", "ccv3", b"IEND"]
    assert png.rest == b"more"


def test_s9_writing_keeps_every_other_chunk_and_pixel() -> None:
    """Even a chunk with a wrong checksum keeps its bytes."""
    odd = make_chunk(b"prVt", b"private").raw[:-4] + b"\0\0\0\0"
    bare = tiny_png()
    data = bare[:8] + bare[8:33] + odd + bare[33:]
    card = Card.read(V3, picture=data)
    exported = read_png(export_card(card, "png").data)
    kept = [
        chunk.raw for chunk in exported.chunks if not ((text := TextReader().read(chunk)) and text.keyword != "Title")
    ]
    assert kept == [chunk.raw for chunk in read_png(data).chunks]
    assert exported.notes == read_png(data).notes != []


def test_s9_the_v2_text_has_a_note_and_no_decorators() -> None:
    book = {"extensions": {}, "entries": [{"keys": ["a"], "content": "@@depth 3\nLore"}]}
    document = {**V3, "data": {**V3["data"], "character_book": book}}
    texts = texts_of(export_card(Card.read(document), "png").data)
    chara, ccv3 = (json.loads(base64.b64decode(texts[keyword])) for keyword in ("chara", "ccv3"))
    assert same_document(ccv3, document)
    assert chara["spec"] == "chara_card_v2"
    assert "V3" in chara["data"]["creator_notes"]
    assert "SECRET-NOTES" in chara["data"]["creator_notes"]
    assert chara["data"]["character_book"]["entries"][0]["content"] == "Lore"


def test_s9_assets_have_chunks_of_their_own() -> None:
    exported = export_card(Card.read(V3, FILES), "png").data
    assert base64.b64decode(texts_of(exported)["chara-ext-asset_:assets/happy.bin"]) == FILES["assets/happy.bin"]
    assert import_card(exported, "a.png").card.files == FILES


def test_s9_an_asset_with_an_unsafe_path_stays_in_the_picture() -> None:
    data = tiny_png(("chara", b64(packed(V2))), ("chara-ext-asset_:../evil", b64(b"x")))
    imported = import_card(data, "a.png")
    assert imported.card.files == {}
    assert "../evil" in imported.notes[0]


def test_s9_a_wrong_checksum_is_accepted_with_a_note() -> None:
    data = png_with(V2)
    end = data.index(b"IEND")
    spoilt = data[: end - 8] + b"\0\0\0\0" + data[end - 4 :]
    imported = import_card(spoilt, "a.png")
    assert imported.card.name == "Ada"
    assert "checksum of a 'tEXt' chunk" in imported.notes[0]


def test_s9_a_truncated_picture_still_gives_its_card() -> None:
    data = tiny_png(("chara", b64(packed(V2))), ("Comment", b"x" * 100))
    imported = import_card(data[:-60], "a.png")
    assert imported.card.name == "Ada"
    assert imported.card.picture is None
    assert "cut off" in imported.notes[0]


def test_s9_a_broken_v3_text_is_skipped_for_a_valid_v2_with_a_note() -> None:
    imported = import_card(tiny_png(("ccv3", b"****"), ("chara", b64(packed(V2)))), "a.png")
    assert imported.card.generation == 2
    assert "base64" in imported.notes[0]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"****", "base64"),
        (b64(b"{"), "not JSON"),
        (b64(b"\xff\xfe\xfd"), "not text|not JSON"),
        (b64(b"[1]"), "not a JSON object"),
        (b64(b"5"), "not a JSON object"),
    ],
)
def test_s9_a_text_that_cannot_be_read_is_a_clear_error(value: bytes, reason: str) -> None:
    with pytest.raises(BrokenCard, match=reason):
        import_card(tiny_png(("chara", value)), "a.png")


def test_s9_base64_may_be_wrapped_and_unpadded() -> None:
    value = b64(packed(V2)).rstrip(b"=")
    wrapped = b"\n".join(value[at : at + 76] for at in range(0, len(value), 76))
    assert import_card(tiny_png(("chara", wrapped)), "a.png").card.name == "Ada"


def test_s9_a_picture_without_a_card_is_refused_with_a_hint() -> None:
    with pytest.raises(NotACard, match="original"):
        import_card(tiny_png(), "a.png")


def test_s9_a_picture_with_the_bytes_of_a_zip_in_it_is_still_called_a_picture() -> None:
    with pytest.raises(NotACard, match="picture"):
        import_card(tiny_png(("Comment", b"PK\x01\x02")), "a.png")


def test_s9_a_compression_bomb_in_a_text_is_not_unpacked() -> None:
    body = b"ccv3\0\x01\0\0\0" + zlib.compress(b"A" * 70_000_000, 9)
    png = read_png(png_with(V2))
    data = png._replace(chunks=[make_chunk(b"iTXt", body), *png.chunks]).to_bytes()
    assert import_card(data, "a.png").card.name == "Ada"


def test_s9_too_many_chunks_are_refused() -> None:
    png = read_png(png_with(V2))
    data = png._replace(chunks=[make_chunk(b"xxXX", b"")] * 50_001 + png.chunks).to_bytes()
    with pytest.raises(CardTooBig, match="chunks"):
        import_card(data, "a.png")


def test_a_card_without_a_picture_shows_its_icon_and_else_a_plain_one() -> None:
    icon = tiny_png(("Software", b"painter"))
    card = Card.read(V3, {"assets/icon/main.png": icon})
    exported = export_card(card, "png").data
    assert "Software" in texts_of(exported)
    assert import_card(exported, "a.png").card == card
    plain = export_card(Card.read(V2), "png").data
    assert read_png(plain).notes == []
    assert import_card(plain, "a.png").card.picture is None


def _count_inflated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the decompressed texts, from now on."""
    sizes: list[int] = []
    inflate = TextReader._inflate

    def counting(reader: TextReader, packed_text: bytes) -> bytes:
        value = inflate(reader, packed_text)
        sizes.append(len(value))
        return value

    monkeypatch.setattr(TextReader, "_inflate", counting)
    return sizes


def test_texts_that_are_no_part_of_a_card_are_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = _count_inflated(monkeypatch)
    with pytest.raises(NotACard):
        import_card(png_of_compressed_texts(200_000, unpacked=1_000_000), "a.png")
    assert sizes == []


def test_many_texts_that_claim_to_be_cards_are_decompressed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = _count_inflated(monkeypatch)
    with pytest.raises(CardError):
        import_card(png_of_compressed_texts(2_000_000, b"chara", unpacked=30_000_000), "a.png")
    assert 0 < sum(sizes) <= 128_000_000


def test_many_wrong_checksums_are_a_few_notes() -> None:
    png = read_png(png_with(V2))
    wrong = Chunk(b"xxXX", b"", make_chunk(b"xxXX", b"").raw[:-4] + b"\0\0\0\0")
    notes = import_card(png._replace(chunks=[wrong] * 5_000 + png.chunks).to_bytes(), "a.png").notes
    assert len(notes) == 21
    assert notes[-1] == "4980 more chunks have a wrong checksum"
