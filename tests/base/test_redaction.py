"""S29: a secret is redacted in every encoding."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coterie.base.errors import SecretInName
from coterie.base.redaction import REDACTED, Redactor, StreamRedactor

SECRET = "hunter2/€+ 'q\"x"

secrets = st.text(st.characters(codec="utf-8", exclude_characters="[]"), min_size=6, max_size=40)
around = st.text(st.characters(codec="utf-8", exclude_characters="[]"), max_size=30)


def redactor_for(*secrets: str) -> Redactor:
    mask = Redactor()
    for secret in secrets:
        mask.register(secret)
    return mask


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        "".join(f"%{byte:02x}" for byte in SECRET.encode()),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        html.escape(SECRET),
        repr(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_registered_secret_is_redacted_in_every_encoding(form: str) -> None:
    mask = redactor_for(SECRET)
    masked = mask(f"before {form} after")
    assert masked.startswith("before " + REDACTED)
    assert masked.endswith(" after")
    assert form not in masked
    assert mask.contains_secret(form)


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_base64_is_found_at_every_offset(offset: int) -> None:
    text = base64.b64encode(b"u" * offset + SECRET.encode() + b":tail").decode()
    assert REDACTED in redactor_for(SECRET)(text)


@pytest.mark.parametrize(
    "credential",
    [
        "sk-proj-abcdefghij0123456789",
        "ghp_abcdefghijklmnopqrst0123",
        "github_pat_abcdefghijklmnopqrst_0123",
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "xoxb-1234567890-abc",
        "AKIAABCDEFGHIJKLMNOP",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut short",
    ],
)
def test_credentials_are_recognised_by_their_format(credential: str) -> None:
    assert Redactor()(f"key: {credential}") == f"key: {REDACTED}"


def test_a_bearer_token_is_redacted_and_the_scheme_stays() -> None:
    assert Redactor()("Authorization: Bearer abc.def-ghi_jkl") == f"Authorization: Bearer {REDACTED}"


@pytest.mark.parametrize("text", ["risk-averse people", "task-0123456789", "sk-short", "nothing here", "AIza is short"])
def test_ordinary_text_is_unchanged(text: str) -> None:
    mask = redactor_for("hunter2")
    assert mask(text) == text
    assert not mask.contains_secret(text)


def test_very_short_secrets_are_ignored() -> None:
    assert redactor_for("cat")("the cat sat") == "the cat sat"


def test_a_secret_within_a_secret_is_redacted_completely() -> None:
    assert redactor_for("hunter2", "my-hunter2-key")("x my-hunter2-key y hunter2") == f"x {REDACTED} y {REDACTED}"


@given(secrets, around, around)
def test_plain_text_never_keeps_a_registered_secret(secret: str, before: str, after: str) -> None:
    assume(secret not in REDACTED)
    assert secret not in redactor_for(secret)(before + secret + after)


@given(secrets, around, around, st.booleans())
def test_hex_never_keeps_it(secret: str, before: str, after: str, upper: bool) -> None:
    text = (before + secret + after).encode().hex()
    masked = redactor_for(secret)(text.upper() if upper else text)
    assert secret.encode().hex() not in masked.lower()
    assert REDACTED in masked


@given(secrets, around, around, st.sampled_from(["", "/", "/:@!$&'()*+,;="]), st.booleans())
def test_urls_never_keep_it(secret: str, before: str, after: str, safe: str, lower: bool) -> None:
    form = quote(secret, safe=safe)
    if lower:
        form = "".join(
            quote(letter, safe=safe).lower() if len(quote(letter, safe=safe)) > 1 else letter for letter in secret
        )
    assume(form not in REDACTED)
    assert form not in redactor_for(secret)(quote(before, safe="") + form + quote(after, safe=""))


@given(secrets, around, around, st.booleans())
def test_base64_never_keeps_it(secret: str, before: str, after: str, url: bool) -> None:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    start, end = len(before.encode()), len((before + secret).encode())
    text = encode((before + secret + after).encode()).decode()
    own = text[-(-start * 8 // 6) : end * 8 // 6]
    masked = redactor_for(secret)(text)
    assert own not in masked
    assert REDACTED in masked


def test_d18_a_secret_inside_a_key_does_not_show_the_rest_of_it() -> None:
    mask = Redactor()
    mask.register("abcdefgh")
    mask.register("sk-zyxwvutsrqponmlkji, and more")
    assert mask("key sk-abcdefghijklmnopqrstuv here, abcdefgh") == "key [secret] here, [secret]"
    assert mask("sk-zyxwvutsrqponmlkji, and more") == "[secret]"
    assert mask("abcdefghabcdefgh and abcdefgh.") == "[secret][secret] and [secret]."


def test_a_secret_that_is_a_part_of_the_placeholder_does_not_make_it_grow() -> None:
    mask = redactor_for("secret", "hunter22")
    assert mask(mask(mask("it is hunter22"))) == f"it is {REDACTED}"


def test_text_with_a_lone_surrogate_is_searched_too() -> None:
    mask = redactor_for("hunter2-hunter2", "\ud800\ud800\ud800\ud800")
    assert mask("\ud800 hunter2-hunter2") == f"\ud800 {REDACTED}"


@pytest.mark.parametrize(
    "text", ["$sk-dQw4w9WgXcQdQw4w9WgXcQdQw4w9WgXcQ", "aB-sk-Qw4w9WgXcQdQw4w9WgXcQdQw4", "$AIza" + "x" * 39]
)
def test_a_random_id_is_not_mistaken_for_a_credential(text: str) -> None:
    assert Redactor()(text) == text


def test_json_stays_valid_when_a_credential_without_an_end_is_redacted() -> None:
    text = json.dumps({"text": "-----BEGIN PRIVATE KEY-----\ncut short", "after": ["kept", 1, None]})
    assert json.loads(Redactor().json(text)) == {"text": REDACTED, "after": ["kept", 1, None]}


def test_a_name_may_contain_a_short_secret_but_not_a_long_one() -> None:
    mask = redactor_for("webhook", "correct-horse-battery")
    mask.check_names("webhook:main", None)
    for name in (
        "webhook:correct-horse-battery",
        quote("correct-horse-battery", safe=""),
        b"correct-horse-battery".hex(),
    ):
        with pytest.raises(SecretInName):
            mask.check_names("fine", name)


@given(secrets, around, around)
def test_the_quick_search_in_json_never_misses_a_secret_of_one_of_its_strings(
    secret: str, before: str, after: str
) -> None:
    mask = redactor_for(secret)
    forms = (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret), html.escape(secret))
    for form in forms:
        if mask.contains_secret(before + form + after):
            assert mask.may_contain_secret(json.dumps({"text": before + form + after}, ensure_ascii=False))


PIECES: tuple[str, ...] = (
    "hunter2 x",
    "abcabcab",
    "bcabcabcd",
    "sk-abcdefghij0123456789",
    "ghp_abcdefghijklmnopqrst0123",
    "Bearer abcdef.ghijklmn",
)
PIECES += (
    "-----BEGIN PRIVATE KEY-----\nMII\n",
    "-----END PRIVATE KEY-----",
    "-",
    "sk-",
    "AIza",
    " ",
    "$",
    "hun",
    "ab",
    "AKIAABCDEFGHIJKLMNOP",
)
PIECES += (
    quote("hunter2 x"),
    "hunter2+x",
    b"hunter2 x".hex(),
    base64.b64encode(b"hunter2 x").decode(),
    "%2",
    "B",
    "x",
    "github_pat_",
)


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.data())
def test_text_in_chunks_is_redacted_like_the_whole_text(text: str, data: st.DataObject) -> None:
    mask = redactor_for("hunter2 x", "abcabcab", "bcabcabcd")
    stream, shown, rest = StreamRedactor(mask), "", text
    while rest:
        length = data.draw(st.integers(1, len(rest)))
        shown += stream.filter(rest[:length])
        rest = rest[length:]
    assert shown + stream.flush() == mask(text)


@given(secrets, around, around, st.data())
def test_no_part_of_a_secret_is_shown_before_the_rest_of_it_arrives(
    secret: str, before: str, after: str, data: st.DataObject
) -> None:
    assume(secret not in REDACTED)
    mask = redactor_for(secret)
    split = data.draw(st.integers(1, len(secret) - 1))
    stream = StreamRedactor(mask)
    shown = stream.filter(before + secret[:split]) + stream.filter(secret[split:] + after) + stream.flush()
    assert shown == mask(before + secret + after)
