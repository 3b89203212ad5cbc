from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from coterie.surfaces.web.shared.limits import ConnectionLimits, limits_for_this_process
from tests.surfaces.web.shared.serving import TIMEOUT_S, Connection, serving

LENIENT = ConnectionLimits(header_s=TIMEOUT_S, write_s=TIMEOUT_S, linger_s=TIMEOUT_S)
GET = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """`/stream` stays open, `/large` sends much, `/early` answers before it has read the body, others answer `ok`."""
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"open", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body = b"x" * 50_000_000 if scope["path"] == "/large" else b"ok"
    while scope["path"] != "/early" and (await receive()).get("more_body"):
        pass
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("part", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: "])
async def test_a_connection_whose_request_does_not_arrive_is_closed(part: bytes) -> None:
    async with serving(answer, ConnectionLimits(header_s=0.2)) as port:
        client = await Connection.open(port)
        await client.send(part)
        assert await client.read_until_closed() == b""
        await client.close()


async def test_bytes_that_trickle_in_do_not_extend_the_time_of_a_head() -> None:
    async with serving(answer, ConnectionLimits(header_s=0.3)) as port:
        client = await Connection.open(port)
        await client.send(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            while True:
                await client.send(b"X-Slow: 1\r\n")
                await asyncio.sleep(0.05)

        slow = asyncio.create_task(trickle())
        assert await client.read_until_closed() == b""
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        await client.close()


async def test_the_second_request_of_a_connection_has_the_same_time_limit() -> None:
    async with serving(answer, ConnectionLimits(header_s=0.3)) as port:
        client = await Connection.open(port)
        await client.send(GET)
        assert await client.response() == (200, b"ok")
        await client.send(b"GET / HT")
        assert await client.read_until_closed() == b""
        await client.close()


async def test_a_live_stream_outlasts_the_time_limit_of_a_head() -> None:
    async with serving(answer, ConnectionLimits(header_s=0.1)) as port:
        stream = await Connection.open(port)
        await stream.send(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await stream.response())[0] == 200
        await asyncio.sleep(0.5)
        reading = asyncio.create_task(stream.read_until_closed())
        await asyncio.sleep(0.1)
        assert not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await stream.close()


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with serving(answer, ConnectionLimits(write_s=0.2)) as port:
        client = await Connection.open(port)
        await client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(1)
        assert len(await client.read_until_closed()) < 50_000_000
        await client.close()


async def test_half_sent_requests_give_way_to_whole_ones() -> None:
    async with serving(answer, ConnectionLimits(total=40, header_s=TIMEOUT_S)) as port:
        held = [await Connection.open(port) for _ in range(100)]
        for client in held[-30:]:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
        for _ in range(50):
            client = await Connection.open(port)
            await client.send(GET)
            assert await client.response() == (200, b"ok")
            await client.close()
        for client in held:
            await client.close()


async def test_streams_are_not_closed_for_new_connections_which_are_refused_instead() -> None:
    limits = ConnectionLimits(total=16, header_s=TIMEOUT_S)
    async with serving(answer, limits) as port:
        streams = [await Connection.open(port) for _ in range(limits.per_address)]
        for stream in streams:
            await stream.send(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await stream.response())[0] == 200
        late = await Connection.open(port)
        status, body = await late.response()
        assert status == 503
        assert b'"fix"' in body
        await streams[0].close()
        async with asyncio.timeout(TIMEOUT_S):
            while True:  # until the server has seen that it closed
                client = await Connection.open(port)
                await client.send(GET)
                status, _ = await client.response()
                await client.close()
                if status == 200:
                    break
        for stream in [late, *streams]:
            await stream.close()


async def test_a_refused_body_is_read_for_a_while_so_that_the_client_sees_the_answer() -> None:
    head = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    async with serving(answer, LENIENT) as port:
        client = await Connection.open(port)
        await client.send(head + b"x" * 1_000)
        assert await client.response() == (200, b"ok")
        await client.send(b"x" * 999_000)
        await client.send(GET)
        assert await client.response() == (200, b"ok")
        await client.close()


@pytest.mark.parametrize("limits", [ConnectionLimits(linger_s=0.2), ConnectionLimits(linger_s=TIMEOUT_S)])
async def test_an_endless_body_is_cut_off_after_its_refusal(limits: ConnectionLimits) -> None:
    async with serving(answer, limits) as port:
        client = await Connection.open(port)
        await client.send(b"POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert await client.response() == (200, b"ok")
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    await client.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                    await asyncio.sleep(0.001)
        await client.close()


def test_the_limit_of_connections_stays_below_that_of_files() -> None:
    import resource

    limits = limits_for_this_process()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 32 <= limits.total < soft
    assert limits.streams < limits.per_address < limits.total
