"""Memory of characters: storage, access rules, recall and extraction. Usable alone as a library.

`from coterie.memory import Memory` is the entry point. It is imported on first use, so that modules which only need
the events or the records do not import numpy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.memory.memory import Memory

# The matrices of a recall are so small that threads of the linear algebra library only slow it down. The variable must
# be set before numpy is imported; a value from the environment is kept.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = ["Memory"]


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from coterie.memory.memory import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
