"""Fuzz every route of the API with schemathesis, as the owner and without a session, on a real server.

The server runs in a process of its own with a scripted model and can reach this machine only. Counted: responses of
5xx, requests that took more than five seconds or got no answer, responses that `/openapi.json` does not describe.
Afterwards the database is verified.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from bench.lib.api_fuzzer import ApiFuzzer, fill
from bench.lib.report import arguments, finish, log, scratch_folder
from bench.lib.server_process import serving

_OWNER, _STRANGER = 150, 60
_QUICK_OWNER, _QUICK_STRANGER = 4, 2


def run(owner: int, stranger: int) -> dict[str, object]:
    with scratch_folder() as folder:
        with serving(Path(folder)) as server:
            cookies = server.log_in()
            schema = httpx.get(f"{server.address}/openapi.json", cookies=cookies, timeout=60).json()
            fuzzer = ApiFuzzer(server.address, schema, fill(server.address, cookies))
            fuzzer.run(cookies, owner)
            log(f"as the owner: {fuzzer.result.requests:,} requests")
            fuzzer.run({}, stranger, number=2)
            running, rss = server.is_running, server.rss_mb()
            lines = server.log.read_text().count("\n")
        clean = server.verify()
    result = fuzzer.result
    log(f"by status: {dict(sorted(result.statuses.items()))}")
    return {
        "requests": result.requests,
        "operations": result.operations,
        "server_errors": result.server_errors,
        "hangs": result.hangs,
        "undocumented": result.undocumented,
        "slowest_s": round(result.slowest_s, 2),
        "still_running": running,
        "rss_mb": round(rss),
        "log_lines": lines,
        "verify_clean": clean,
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    finish(run(_QUICK_OWNER, _QUICK_STRANGER) if options.quick else run(_OWNER, _STRANGER))


if __name__ == "__main__":
    main()
