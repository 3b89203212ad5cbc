"""A file as the body of a request, whatever content type it claims."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from coterie.characters.cards import check_size

FILE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}
"""For the API's description."""


async def read_upload(request: Request) -> bytes:
    """The file, refused as soon as it is too large: a length that was announced may be a lie."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        check_size(size)
        parts.append(part)
    return b"".join(parts)
