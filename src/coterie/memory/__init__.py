"""Memory: what a character knows, who may know it, and how it knows it. Usable alone as a library.

`from coterie.memory import Memory` gives the whole of it; it is loaded when it is first asked for, so that
rooms which only need the events or the records do not pay for numpy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.memory.memory import Memory

# The matrices of one recall are small: threads of the linear algebra library would wait for each other longer
# than they work. This has to be said before numpy is first imported, and does not override a person's choice.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = ["Memory"]


def __getattr__(name: str) -> Any:
    if name == "Memory":
        from coterie.memory.memory import Memory

        return Memory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
