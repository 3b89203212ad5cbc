"""Benches, one module each: `python -m bench.NAME [--quick]` prints one JSON object as its last line."""

import os

# As in `coterie.memory`, and before any bench imports numpy: small matrices, shared cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
