"""Memory: what a character knows, who may know it, and how it is recalled. Usable alone as a library."""

import os

import lazy_loader

# The matrices of one recall are small: threads of the linear algebra library cost more than they save.
# The variable is read when numpy is first imported; a value that the user set stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
