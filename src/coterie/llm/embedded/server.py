"""The embedded model's process: llama.cpp's server on a loopback port. Run with `python -m`.

It reads its options from standard input as one line of JSON (arguments would be visible to other users), writes its
address to standard output as another line, and exits when standard input is closed, so it never outlives its parent.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

_DEFAULT_MAX_TOKENS = 512
"""For requests without max_tokens: small models do not always stop by themselves."""


def main() -> None:
    options = json.loads(sys.stdin.readline())
    # llama.cpp writes to standard output too; keep a separate descriptor for our one line.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _limit_memory(options["memory_mb"])
    try:
        server = _serve(options)
    except Exception as error:
        output.write(json.dumps({"error": str(error) or type(error).__name__}) + "\n")
        output.flush()
        os._exit(1)
    output.write(json.dumps({"url": server.listening_address}) + "\n")
    output.flush()
    while sys.stdin.readline():
        pass
    os._exit(0)


def _serve(options: dict[str, object]):  # type: ignore[no-untyped-def]  # the library has no types
    import xllamacpp

    slots, context = int(str(options["slots"])), int(str(options["context"]))
    params = xllamacpp.CommonParams()
    params.model.path = str(options["weights"])
    # Candidates of one reply share its prompt, so they need a sequence each, but hardly more memory.
    params.n_parallel = slots * int(str(options["candidates"]))
    params.kv_unified = True
    params.kv_unified_per_slot = context
    params.n_ctx = context * slots
    params.n_predict = _DEFAULT_MAX_TOKENS
    params.cache_ram_mib = 0
    # Reading a prompt is one long step that all cores shorten. Writing is many short steps, each as slow as the slowest
    # thread, so one core is left free for the rest of the machine.
    params.cpuparams.n_threads = int(str(options["threads"]))
    params.cpuparams_batch.n_threads = os.cpu_count() or 1
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    # Small models tend to repeat phrases endlessly. DRY penalises repetition by the length of the repeated phrase;
    # penalties on single tokens make the text incoherent instead.
    params.sampling.dry_multiplier, params.sampling.dry_penalty_last_n = 0.8, 512
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [str(options["key"])]
    params.ui = False
    params.model_alias = {str(options["name"])}
    params.verbosity = -1
    return xllamacpp.Server(params)


def _limit_memory(megabytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    # A limit on address space makes an allocation fail before it affects the rest of the machine.
    limit = megabytes * 1024 * 1024
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        # llama.cpp aborts when it gets no memory; a core dump of hundreds of megabytes is of no use.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
