"""The process in which the embedded model lives: llama.cpp's own server on a loopback port, and nothing else.

It reads its orders as one line of JSON (not from its arguments, where everybody on the machine could read the key),
says where it listens in another, and ends when its standard input does: it never outlives the program that started it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

_DEFAULT_MAX_TOKENS = 512
"""For requests that set no max_tokens: small models do not always know when to stop."""


def main() -> None:
    orders = json.loads(sys.stdin.readline())
    # llama.cpp writes to standard output as it likes; the one line that matters keeps a channel of its own.
    says = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _limit_memory(orders["memory_mb"])
    try:
        server = _serve(orders)
    except Exception as error:
        says.write(json.dumps({"error": str(error) or type(error).__name__}) + "\n")
        says.flush()
        os._exit(1)
    says.write(json.dumps({"url": server.listening_address}) + "\n")
    says.flush()
    while sys.stdin.readline():
        pass
    os._exit(0)


def _serve(orders: dict[str, object]):  # type: ignore[no-untyped-def]  # the library has no types
    import xllamacpp

    slots, context = int(str(orders["slots"])), int(str(orders["context"]))
    params = xllamacpp.CommonParams()
    params.model.path = str(orders["weights"])
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.kv_unified = False
    params.n_predict = _DEFAULT_MAX_TOKENS
    params.cache_ram_mib = 0
    # Reading a prompt is one long step that more threads shorten; writing is many short ones, at the end of each of
    # which the threads wait for the slowest: there, one core is left to the rest of the machine.
    params.cpuparams.n_threads = int(str(orders["threads"]))
    params.cpuparams_batch.n_threads = os.cpu_count() or 1
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    # A small model that begins to repeat itself does not stop: what would repeat a phrase becomes the less likely the
    # longer the phrase is. Penalties on single words make it lose the thread instead.
    params.sampling.dry_multiplier, params.sampling.dry_penalty_last_n = 0.8, 512
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [str(orders["key"])]
    params.ui = False
    params.model_alias = {str(orders["name"])}
    params.verbosity = -1
    return xllamacpp.Server(params)


def _limit_memory(megabytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    # Address space is the one limit that also stops an allocation before it hurts the rest of the machine.
    limit = megabytes * 1024 * 1024
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        # llama.cpp aborts when it gets no memory; hundreds of megabytes of core dump help nobody.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
