"""Errors of memory.

CoterieError
└── MemoryFault
    ├── WeightsMissing       the package with the word vectors is not installed
    ├── EmbedderFailed       an embedder failed or returned something other than vectors
    ├── NoSuchMemory         no memory has this id
    ├── BadMemory            a memory cannot be stored as it is
    └── BadImport            a file is not an export of memories
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
