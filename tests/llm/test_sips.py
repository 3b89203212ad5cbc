"""Sips: fewer readings, and never a byte fewer."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.llm import sips
from coterie.llm.catalogue import Catalogue
from coterie.llm.hosted import Hosted
from coterie.llm.messages import Prompt, Request, TextDelta
from coterie.llm.sips import Sips, Together
from tests.llm.conftest import settings_for
from tests.llm.fault_server import FaultServer, Wire

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
FOREVER_S = 10_000.0


class Counted(ByteStream):
    """How often it was read."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.readings = 0

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        self.readings += 1
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def connected(answer: Answer, secure: ssl.SSLContext | None = None) -> AsyncIterator[Counted]:
    """A connection to somebody who answers whatever is sent first."""

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(1)
            await answer(writer)
            writer.close()
            await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure)
    async with server:
        async with await anyio.connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1]) as stream:
            yield Counted(stream)
        await served.wait()


def trickle(pieces: int, rest_s: float = 0.001) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for number in range(pieces):
            writer.write(b"%06d" % number)
            await writer.drain()
            await asyncio.sleep(rest_s)

    return answer


async def everything(stream: ByteStream) -> bytes:
    await stream.send(b"?")
    found = bytearray()
    while True:
        try:
            found += await stream.receive()
        except anyio.EndOfStream:
            return bytes(found)


def longest(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(sips, "SIP_S", seconds)
    monkeypatch.setattr(sips, "LONGEST_SIP_S", seconds)


async def test_a_trickle_is_read_in_fewer_readings_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    longest(monkeypatch, 0.1)
    async with connected(trickle(600)) as stream:
        assert await everything(Sips(stream)) == b"".join(b"%06d" % number for number in range(600))
        assert stream.readings < 300


async def test_a_short_answer_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    longest(monkeypatch, FOREVER_S)
    async with connected(trickle(12)) as stream:
        assert len(await everything(Sips(stream))) == 72


async def test_whoever_sends_is_answered_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    longest(monkeypatch, FOREVER_S)
    async with connected(trickle(100, 0.01)) as stream:
        sipped = Sips(stream)
        found = b""
        while len(found) < 600:
            await sipped.send(b"?")  # as a handshake does
            found += await sipped.receive()


async def test_a_large_body_is_not_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(8_000_000))
        await writer.drain()

    longest(monkeypatch, FOREVER_S)
    monkeypatch.setattr(sips, "_TRICKLE", 64)
    async with connected(flood) as stream:
        assert len(await everything(Sips(stream))) == 8_000_000
        assert stream.readings > sips._AT_ONCE


async def test_a_sip_grows_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []

    async def slept(seconds: float) -> None:
        rests.append(seconds)

    class Endless(Counted):
        def __init__(self) -> None: ...

        async def receive(self, max_bytes: int = 65_536) -> bytes:
            now[0] += 0.01
            return b"word"

        async def send(self, item: bytes) -> None: ...

    now = [0.0]
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: now[0])
    monkeypatch.setattr(asyncio, "sleep", slept)
    stream = Sips(Endless())
    await stream.send(b"?")
    now[0] += 60  # it reads its prompt
    for _ in range(3_000):
        await stream.receive()
    grown = [round(rest, 3) for rest in rests]
    assert grown == sorted(grown)
    assert (grown[0], grown[100], grown[-1]) == (0.1, 0.1, 0.3)


def certified(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = folder / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_sealed_trickle_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    longest(monkeypatch, 0.1)
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    async with connected(trickle(600), certified(tmp_path)) as stream:
        sealed = await TLSStream.wrap(Sips(stream), ssl_context=unchecked, server_side=False, standard_compatible=False)
        assert len(await everything(sealed)) == 3_600
        assert stream.readings < 300


class Body(httpx2.AsyncByteStream):
    """Pieces that come together, unless there is a rest between them."""

    def __init__(self, *pieces: bytes | None, fails: Exception | None = None) -> None:
        self._pieces = pieces
        self._fails = fails
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if piece is None:
                await asyncio.sleep(0.01)
            else:
                yield piece
        if self._fails is not None:
            raise self._fails

    async def aclose(self) -> None:
        self.closed = True


async def test_pieces_that_came_together_are_handed_on_together() -> None:
    body = Together(Body(b"a", b"b", None, b"c", None, b"d", b"e", b"f"))
    assert [piece async for piece in body] == [b"ab", b"c", b"def"]


async def test_what_went_wrong_is_told_after_what_came_before_it() -> None:
    body = Together(Body(b"a", None, b"b", fails=httpx2.ReadError("gone")))
    pieces = aiter(body)
    assert [await anext(pieces), await anext(pieces)] == [b"a", b"b"]
    with pytest.raises(httpx2.ReadError, match="gone"):
        await anext(pieces)


async def test_an_empty_body_ends() -> None:
    assert [piece async for piece in Together(Body())] == []


async def test_nothing_is_read_far_ahead_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sips, "_MOST_PIECES", 10)
    found = [piece async for piece in Together(Body(*[b"%d," % number for number in range(1_000)]))]
    assert b"".join(found) == b"".join(b"%d," % number for number in range(1_000))
    assert max(piece.count(b",") for piece in found) <= 10


async def test_whoever_listens_again_hears_the_rest_of_it() -> None:
    body = Together(Body(b"a", None, b"b", None, b"c"))
    async for piece in body:
        assert piece == b"a"
        break
    assert [piece async for piece in body] == [b"b", b"c"]
    assert [piece async for piece in body] == []


async def test_leaving_early_ends_the_reading_and_closes_the_body() -> None:
    class Silent(Body):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.Event().wait()

    inner = Silent()
    body = Together(inner)
    async for piece in body:
        assert piece == b"a"
        break
    await body.aclose()
    assert inner.closed
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "a model's answer"]


async def test_models_are_read_in_sips(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices if the HTTP library ever calls its pools or their streams something else."""
    longest(monkeypatch, 0.1)
    readings = []
    receive = Sips.receive

    async def counted(self: Sips, max_bytes: int = 65_536) -> bytes:
        data = await receive(self, max_bytes)
        readings.append(data)
        return data

    async def long_winded(wire: Wire) -> None:
        await wire.begin()
        for number in range(600):
            await wire.words(f" {number}")
            await asyncio.sleep(0.001)
        await wire.end()

    monkeypatch.setattr(Sips, "receive", counted)
    model = "claude-opus-5" if server.anthropic else "first"
    server.on(model, long_winded)
    hosted = Hosted(Catalogue(settings_for(server)).spec("here"))
    chunks = [chunk async for chunk in hosted.stream(Request(model=model, prompt=Prompt.of("Count.")))]
    await hosted.close()
    words = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
    assert "".join(words) == "".join(f" {number}" for number in range(600))
    assert 0 < len(readings) < 300
    if not server.anthropic:
        assert len(words) <= len(readings)
