"""Memory: what a character knows, who may know it, and how it knows it. Usable alone as a library."""

import os

# The matrices of one recall are small: threads of the linear algebra library would wait for each other longer
# than they work. This has to be said before numpy is first imported, and does not override a person's choice.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from coterie.memory.library import Memory  # noqa: E402

__all__ = ["Memory"]
