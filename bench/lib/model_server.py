"""A model server with OpenAI's protocol in a process of its own, so that its cost is not measured with Coterie's.

`python -m bench.lib.model_server PACE` prints its port, then answers with as many words as `max_tokens` or the last
message ("… 1200 words") asks for, or with what the last message has in double square brackets; requests for JSON get an
empty object. PACE is the seconds between two words; at 0
the server yields between them, so that a client cannot read many at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_DEFAULT_WORDS = 50
_WORD_COUNT = re.compile(r"(\d+) words")
_GIVEN_ANSWER = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)


@contextmanager
def model(pace_s: float = 0.0) -> Iterator[str]:
    """Run the server; gives its base URL."""
    command = [sys.executable, "-m", "bench.lib.model_server", str(pace_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        finally:
            server.terminate()


def word(number: int) -> str:
    """A word of the answer; some are paragraph breaks or emphasised, as in prose."""
    return "\n\n" if number % 60 == 59 else f" *w{number}*" if number % 9 == 0 else " word"


async def _serve(pace_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await _answer(reader, writer, pace_s)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pace_s: float) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if head.startswith("get /v1/models "):
        body = b'{"data": [{"id": "script"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        return
    if not head.startswith("post "):
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        return
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
    words = _words_for(json.loads(await reader.readexactly(length)))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    due = asyncio.get_running_loop().time()
    for text in words:
        await _send(writer, {"delta": {"role": "assistant", "content": text}, "finish_reason": None})
        due += pace_s
        await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))
    await _send(writer, {"delta": {}, "finish_reason": "stop"})
    await _send(writer, None, len(words))
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


def _words_for(request: dict[str, Any]) -> list[str]:
    if "response_format" in request:
        return ["{}"]
    last = request["messages"][-1]["content"]
    last = last if isinstance(last, str) else str(last)
    if given := _GIVEN_ANSWER.search(last):
        return [given[1]]
    named = _WORD_COUNT.search(last)
    count = (
        int(named[1])
        if named
        else int(request.get("max_tokens") or request.get("max_completion_tokens") or _DEFAULT_WORDS)
    )
    return [word(number) for number in range(count)]


async def _send(writer: asyncio.StreamWriter, choice: dict[str, object] | None, tokens: int = 0) -> None:
    chunk: dict[str, object] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    chunk["choices"] = [{"index": 0, **choice}] if choice else []
    if choice is None:
        chunk["usage"] = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    data = b"data: %s\n\n" % json.dumps(chunk).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
