"""What a hostile client can do to a server: `/health` is asked all the time, and the memory is watched.

The server runs in a process of its own. Half-sent requests (heads and bodies) are held open, bodies of 1 GB are sent in
chunks, `/webhook` gets 60 MB of `[],`, a thousand live streams are opened, and every file and text that once made the
event loop stand still is sent. For each: the longest `/health`, its failures, and the peak of the memory of the server
and its worker processes. `answers` are the statuses that the abuse itself got.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from bench.lib import hostile_inputs
from bench.lib.health_probe import HealthProbe
from bench.lib.report import arguments, finish, log, scratch_folder
from bench.lib.server_process import ServerProcess, serving

_HTML = {"Accept": "text/html"}


class Attacker:
    """Everything that is done to the server; each method returns the statuses it got."""

    def __init__(self, server: ServerProcess, *, quick: bool) -> None:
        self._address = server.address
        self._port = urlsplit(server.address).port or 80
        self._host = urlsplit(server.address).netloc  # with the port: the cookies are named after it
        self._cookies = server.log_in()
        self._cookie = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        self._client = httpx.Client(base_url=server.address, cookies=self._cookies, timeout=300)
        self._scale = 10 if quick else 1
        self._hold_s = 5.0 if quick else 30.0

    def half_sent_heads(self) -> Counter[int]:
        return self._hold(1_100, f"GET / HTTP/1.1\r\nHost: {self._host}\r\nX-Slow: ".encode())

    def half_sent_bodies(self) -> Counter[int]:
        return self._hold(1_100, self._head("/login", "Content-Length: 5000") + b'{"password": "')

    def one_gigabyte_to_login(self) -> Counter[int]:
        return self._chunked("/login", b"x", 1_000_000_000 // self._scale)

    def one_gigabyte_with_a_session(self) -> Counter[int]:
        return self._chunked("/characters", b"[],", 1_000_000_000 // self._scale, f"Cookie: {self._cookie}")

    def brackets_to_the_webhook(self) -> Counter[int]:
        return self._chunked("/webhook", b"[],", 60_000_000)

    def values_with_a_session(self) -> Counter[int]:
        body = b"[" + b"[]," * 1_300_000 + b"[]]"
        return self._statuses(lambda: self._post("/characters", body, "application/json"), 10 // self._scale + 1)

    def live_streams(self) -> Counter[int]:
        count, statuses = 1_000, Counter[int]()
        request = (f"Host: {self._host}", f"Cookie: {self._cookie}", "", "")
        head = "\r\n".join(("GET /live?follow=instance:0 HTTP/1.1", *request)).encode()
        with ExitStack() as stack:
            streams = [stack.enter_context(self._connect()) for _ in range(count)]
            for stream in streams:
                stream.sendall(head)
            for stream in streams:
                statuses[_status(stream)] += 1
            time.sleep(self._hold_s)
            ended = 0
            for stream in streams:
                stream.setblocking(False)
                try:
                    while data := stream.recv(65_536):
                        pass
                    ended += not data
                except BlockingIOError:
                    pass
            if ended:
                statuses[0] += ended
        return statuses

    def pages_of_hostile_text(self) -> Counter[int]:
        """Characters, memories, chats and documents whose text is brackets or quotation marks, and their pages."""
        statuses = Counter[int]()
        size = hostile_inputs.TEXT_CHARS
        for name in ("pairs of opening brackets", "straight quotation marks"):
            text = hostile_inputs.TEXTS[name](size)
            made = self._client.post("/characters", json={"name": "Ana", "persona": text[:199_000]})
            statuses[made.status_code] += 1
            character = made.json().get("id", "")
            chat = self._client.post(
                f"/characters/{character}/kickoff", json={"place": {"name": "here"}, "scene": text[:4_000]}
            ).json()
            said = self._client.post(f"/chats/{chat['id']}/turns?wait=true", json={"text": text[:20_000]})
            statuses[said.status_code] += 1
            workspace = self._client.post("/draft/workspaces", json={"name": name}).json()["id"]
            put = self._client.put(f"/draft/workspaces/{workspace}/documents/a.md", json={"text": text})
            statuses[put.status_code] += 1
            for path in (
                f"/characters/{character}",
                f"/chats/{chat['id']}",
                f"/draft/workspaces/{workspace}/documents/a.md",
                "/draft",
                "/chats",
                "/memory",
                f"/search?q={text[:200]}",
            ):
                statuses[self._client.get(path, headers=_HTML).status_code] += 1
        return statuses

    def picture_of_compressed_texts(self) -> Counter[int]:
        return self._import("/characters/import", hostile_inputs.png_of_compressed_texts(40_000_000 // self._scale))

    def card_of_compressed_texts(self) -> Counter[int]:
        data = hostile_inputs.png_of_compressed_texts(40_000_000 // self._scale, b"chara")
        return self._import("/characters/import", data)

    def zip_bombs(self) -> Counter[int]:
        files = [hostile_inputs.zip_bomb(), hostile_inputs.zip_of_many_files(), hostile_inputs.huge_picture()]
        return sum((self._import("/characters/import", data) for data in files), Counter[int]())

    def large_cards(self) -> Counter[int]:
        files = [
            hostile_inputs.nested_json(),
            hostile_inputs.long_field_card(20_000_000 // self._scale),
            hostile_inputs.many_values_card(900_000 // self._scale),
            hostile_inputs.slow_lorebook_card(),
        ]
        return sum((self._import("/characters/import", data) for data in files), Counter[int]())

    def junk_memories(self) -> Counter[int]:
        statuses = self._import("/memories/import", hostile_inputs.junk_memories(48_000_000 // self._scale))
        return statuses + self._import("/memories/import", hostile_inputs.junk_lines(48_000_000 // self._scale))

    def identical_lines(self) -> Counter[int]:
        character = self._client.post("/characters/ready/maren").json()["id"]
        data = hostile_inputs.identical_chat(8_000 // self._scale)
        return self._import(f"/characters/{character}/chats/import", data)

    def branch_names_of_megabytes(self) -> Counter[int]:
        workspace, statuses = self._workspace("branches", "a.md", "lit\n"), Counter[int]()
        size = 3_800_000  # of the 4 MB that a request may have
        for name in ("x" * size, "x/" * (size // 2), "\u0301" * (size // 2), "refs/heads/" * (size // 11)):
            for path, body in (
                ("/branches", {"name": name, "source": "main"}),
                ("/branches", {"name": "b", "source": name}),
                ("/merge", {"source": name, "target": "main"}),
                ("/live/a.md", {"branch": name, "epoch": "e", "version": 0, "updates": []}),
                ("/threads", {"document": "a.md", "branch": name, "members": []}),
            ):
                statuses[self._client.post(f"{workspace}{path}", json=body).status_code] += 1
            put = self._client.put(f"{workspace}/documents/a.md", json={"text": "x", "branch": name})
            statuses[put.status_code] += 1
        return statuses

    def huge_lorebooks(self) -> Counter[int]:
        statuses = Counter[int]()
        for data in hostile_inputs.huge_lorebooks(7_500_000 // self._scale):
            made = self._client.post("/lorebooks/import", params={"name": "huge"}, content=data)
            statuses[made.status_code] += 1
            if made.status_code == 201:
                book = made.json()["id"]
                preview = {"text": "lamp " * 4_000, "book": book}
                statuses[self._client.post("/lorebooks/preview", json=preview).status_code] += 1
                statuses[self._client.get(f"/lorebooks/{book}").status_code] += 1
                statuses[self._client.get(f"/lorebooks/{book}/export?format=world_info").status_code] += 1
                statuses[self._client.get(f"/lorebooks/{book}", headers=_HTML).status_code] += 1
        statuses[self._client.get("/lorebooks", headers=_HTML).status_code] += 1
        return statuses

    def compare_of_huge_documents(self) -> Counter[int]:
        statuses = Counter[int]()
        for number, (before, after) in enumerate(hostile_inputs.huge_documents(2_400_000 // self._scale)):
            workspace = self._workspace(f"compare {number}", "a.md", before)
            statuses[self._client.post(f"{workspace}/branches", json={"name": "b", "source": "main"}).status_code] += 1
            base = self._client.get(f"{workspace}/documents/a.md").json()["base"]
            body = {"text": after, "base": base, "branch": "b"}
            statuses[self._client.put(f"{workspace}/documents/a.md", json=body).status_code] += 1
            for headers in ({}, _HTML):
                found = self._client.get(f"{workspace}/compare?source=b&target=main", headers=headers)
                statuses[found.status_code] += 1
            statuses[self._client.get(f"{workspace}/history", headers=_HTML).status_code] += 1
        return statuses

    def live_merge_of_huge_documents(self) -> Counter[int]:
        """What is typed in a huge document is merged with a change of most of its lines."""
        statuses = Counter[int]()
        for number, (before, after) in enumerate(hostile_inputs.huge_documents(2_400_000 // self._scale)):
            workspace = self._workspace(f"live {number}", "a.md", before)
            live = self._client.get(f"{workspace}/live/a.md").json()
            length = len(before.encode("utf-16-le")) // 2
            typed = [[length // 2, *after[: len(after) // 2].split("\n")[:90_000]], length - length // 2]
            edit = {"branch": live["branch"], "epoch": live["epoch"], "version": live["version"]}
            updates = [{"client": "page", "changes": typed}]
            taken = self._client.post(f"{workspace}/live/a.md", json={**edit, "updates": updates})
            statuses[taken.status_code] += 1
            body = {"text": after, "base": live["base"], "branch": live["branch"]}
            statuses[self._client.put(f"{workspace}/documents/a.md", json=body).status_code] += 1
            statuses[self._client.post(f"{workspace}/live/a.md", json={**edit, "updates": []}).status_code] += 1
            statuses[self._client.post(f"{workspace}/flush/a.md").status_code] += 1
        return statuses

    def close(self) -> None:
        self._client.close()

    def _workspace(self, name: str, document: str, text: str) -> str:
        """The address of a new workspace with one document."""
        made = self._client.post("/draft/workspaces", json={"name": name})
        address = f"/draft/workspaces/{made.json()['id']}"
        self._client.put(f"{address}/documents/{document}", json={"text": text}).raise_for_status()
        return address

    @contextmanager
    def _connect(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            yield connection

    def _head(self, path: str, *lines: str) -> bytes:
        first = [f"POST {path} HTTP/1.1", f"Host: {self._host}", "Content-Type: application/json", *lines]
        return "\r\n".join([*first, "", ""]).encode()

    def _hold(self, count: int, data: bytes) -> Counter[int]:
        """Open connections, send part of a request on each, and hold them; those that are closed are opened anew."""
        until = time.monotonic() + self._hold_s
        opened = 0
        held: list[socket.socket] = []
        try:
            while time.monotonic() < until:
                while len(held) < count and time.monotonic() < until:
                    connection = socket.create_connection(("127.0.0.1", self._port), timeout=60)
                    connection.sendall(data)
                    held.append(connection)
                    opened += 1
                time.sleep(0.5)
                held = [connection for connection in held if not _is_closed(connection)]
        finally:
            for connection in held:
                connection.close()
        log(f"  {opened:,} connections opened")
        return Counter()

    def _chunked(self, path: str, unit: bytes, size: int, *lines: str) -> Counter[int]:
        block = unit * (65_536 // len(unit))
        chunk = f"{len(block):x}\r\n".encode() + block + b"\r\n"
        sent = 0
        with self._connect() as connection:
            connection.sendall(self._head(path, "Transfer-Encoding: chunked", *lines))
            try:
                while sent < size:
                    connection.sendall(chunk)
                    sent += len(block)
                connection.sendall(b"0\r\n\r\n")
            except OSError:
                pass  # the server has closed it
            status = _status(connection)
        log(f"  {sent / 1e6:,.0f} MB sent")
        return Counter([status])

    def _import(self, path: str, data: bytes) -> Counter[int]:
        return self._statuses(lambda: self._post(path, data, "application/octet-stream"), 1)

    def _post(self, path: str, data: bytes, kind: str) -> int:
        try:
            return self._client.post(path, content=data, headers={"Content-Type": kind}).status_code
        except httpx.TransportError:
            return 0

    def _statuses(self, ask: Callable[[], int], times: int) -> Counter[int]:
        return Counter(ask() for _ in range(times))


def _status(connection: socket.socket) -> int:
    """The status of the response on a connection; 0 if there is none."""
    try:
        first = connection.recv(64)
    except OSError:
        return 0
    return int(first[9:12]) if first.startswith(b"HTTP/1.1 ") else 0


def _is_closed(connection: socket.socket) -> bool:
    try:
        connection.setblocking(False)
        closed = connection.recv(65_536) == b""
    except BlockingIOError:
        closed = False
    except OSError:
        closed = True
    if closed:
        connection.close()
    else:
        connection.settimeout(60)
    return closed


class MemoryWatch:
    """The peak of the memory of a server and its worker processes."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak_mb = 0.0
        self.workers_peak_mb = 0.0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            try:
                self.peak_mb = max(self.peak_mb, self._server.rss_mb())
                self.workers_peak_mb = max(self.workers_peak_mb, self._server.workers_rss_mb())
            except psutil.Error:
                return


_ATTACKS = (
    "half_sent_heads",
    "half_sent_bodies",
    "one_gigabyte_to_login",
    "one_gigabyte_with_a_session",
    "brackets_to_the_webhook",
    "values_with_a_session",
    "live_streams",
    "pages_of_hostile_text",
    "picture_of_compressed_texts",
    "card_of_compressed_texts",
    "zip_bombs",
    "large_cards",
    "junk_memories",
    "identical_lines",
    "branch_names_of_megabytes",
    "huge_lorebooks",
    "compare_of_huge_documents",
    "live_merge_of_huge_documents",
)


def run(quick: bool, names: Sequence[str]) -> dict[str, Any]:
    by_attack = ("health_longest_ms", "health_failures", "rss_peak_mb", "seconds", "server_cpu_s")
    figures: dict[str, Any] = {name: {} for name in by_attack}
    with scratch_folder() as folder:
        with serving(Path(folder)) as server:
            attacker = Attacker(server, quick=quick)
            time.sleep(3)  # until what runs at the start is done
            figures["rss_at_start_mb"] = round(server.rss_mb())
            for name in names:
                started, cpu = time.monotonic(), server.cpu_s()
                with HealthProbe(server.address) as probe, MemoryWatch(server) as memory:
                    time.sleep(0.2)
                    answers = getattr(attacker, name)()
                figures["health_longest_ms"][name] = round(probe.longest_s * 1_000)
                figures["health_failures"][name] = len(probe.failures)
                figures["rss_peak_mb"][name] = round(memory.peak_mb)
                figures["seconds"][name] = round(time.monotonic() - started, 1)
                figures["server_cpu_s"][name] = round(server.cpu_s() - cpu, 1)
                log(
                    f"{name}: /health at most {probe.longest_s * 1_000:.0f} ms of {len(probe.times_s)},"
                    f" {len(probe.failures)} failures {probe.failures[:2]}; memory {memory.peak_mb:.0f} MB,"
                    f" workers {memory.workers_peak_mb:.0f} MB; answers {dict(answers)};"
                    f" {figures['seconds'][name]} s, of the server's CPU {figures['server_cpu_s'][name]} s"
                )
            attacker.close()
            figures["still_running"] = server.is_running
            figures["log_kb"] = round(server.log.stat().st_size / 1_000)
            figures |= {
                "cases": len(names),
                "health_max_s": round(max(figures["health_longest_ms"].values()) / 1_000, 2),
                "rss_max_mb": max(figures["rss_peak_mb"].values()),
            }
            figures["health_slower_than_1_s"] = sum(each > 1_000 for each in figures["health_longest_ms"].values())
        figures["verify_clean"] = server.verify()
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_args()
    finish(run(options.quick, options.names or _ATTACKS))


if __name__ == "__main__":
    main()
