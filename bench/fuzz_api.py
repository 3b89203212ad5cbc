"""Fuzz every route of the API with schemathesis, and every page, as the owner and without a session, on a real server.

The server runs in a process of its own with a scripted model and can reach this machine only. Counted: responses of
5xx, requests that took more than five seconds or got no answer, responses that `/openapi.json` does not describe.
Afterwards the database is verified.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from bench.lib.api_fuzzer import ApiFuzzer, fill, page_routes
from bench.lib.report import arguments, finish, log, scratch_folder
from bench.lib.server_process import serving

_OWNER, _STRANGER = 150, 60
_QUICK_OWNER, _QUICK_STRANGER = 4, 2


def run(owner: int, stranger: int) -> dict[str, object]:
    with scratch_folder() as folder:
        with serving(Path(folder)) as server:
            cookies = server.log_in()
            schema = httpx.get(f"{server.address}/openapi.json", cookies=cookies, timeout=60).json()
            fuzzer = ApiFuzzer(server.address, schema, fill(server, cookies))
            pages = page_routes()
            fuzzer.run_pages(pages, cookies, owner)
            log(f"pages: {fuzzer.result.requests:,} requests")
            fuzzer.run(cookies, owner)
            log(f"as the owner: {fuzzer.result.requests:,} requests")
            fuzzer.run({}, stranger, number=2)
            fuzzer.run_pages(pages, {}, stranger)
            running, rss = server.is_running, server.rss_mb()
            lines = server.log.read_text().count("\n")
        clean = server.verify()
    result = fuzzer.result
    log(f"by status: {dict(sorted(result.statuses.items()))}")
    return {
        "requests": result.requests,
        "operations": result.operations,
        "pages": len(pages),
        "server_errors": result.server_errors,
        "hangs": result.hangs,
        "undocumented": result.undocumented,
        "slowest_s": round(result.slowest_s, 2),
        "still_running": running,
        "rss_mb": round(rss),
        "log_lines": lines,
        "verify_failures": int(not clean),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--owner", type=int, default=_OWNER, help="requests to each route as the owner")
    parser.add_argument("--stranger", type=int, default=_STRANGER, help="requests to each route without a session")
    options = parser.parse_args()
    finish(run(_QUICK_OWNER, _QUICK_STRANGER) if options.quick else run(options.owner, options.stranger))


if __name__ == "__main__":
    main()
