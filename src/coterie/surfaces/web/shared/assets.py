"""Style, scripts and fonts, under an address that names their content.

The hash of everything is one part of every path, so that a browser may keep a file for ever, and a script that imports
its neighbour by a relative path gets the one it was written with. There is no build step: style sheets are joined as
they are, in the order of their layers, and what shrinks is compressed once.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)
_LAYERS = ("reset", "tokens", "base")
_LATER_LAYERS = ("shell", "story", "pages", "utilities")
"""What every page has. Any other style sheet is served alone, and a mode's page asks for it."""
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_IMPORTS = re.compile(r'^import .*?from "\./([\w.]+)";$', re.MULTILINE)
_CACHE_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    data: bytes
    compressed: bytes | None
    """Compressed, where that is worth it."""
    media_type: str


@cache
def assets() -> dict[str, StaticFile]:
    """Every file there is, by its path."""
    found = {"app.css": _asset("css", _style())}
    joined = {f"{name}.css" for name in (*_LAYERS, *_LATER_LAYERS)}
    for file in _package_file("static", "css").iterdir():
        if file.name not in joined:
            found[f"css/{file.name}"] = _asset("css", file.read_bytes())
    for folder in ("js", "vendor"):
        for file in _package_file("static", folder).iterdir():
            ending = file.name.rpartition(".")[2]
            if ending in _TYPES:
                found[f"{folder}/{file.name}"] = _asset(ending, file.read_bytes())
    return found


@cache
def assets_version() -> str:
    """The hash of all of it."""
    told = hashlib.sha256()
    for path, asset in sorted(assets().items()):
        told.update(path.encode() + asset.data)
    return told.hexdigest()[:16]


@cache
def module_urls(path: str) -> list[str]:
    """A script and all that it imports, so that a page can fetch them at once instead of one after another."""
    found: list[str] = []
    waiting = [path]
    while waiting:
        script = waiting.pop(0)
        if script not in found:
            found.append(script)
            text = assets()[script].data.decode()
            waiting += [f"js/{name}" for name in _IMPORTS.findall(text)]
    return [asset_url(script) for script in found]


def asset_url(path: str) -> str:
    """Where a page finds a file."""
    if path not in assets():
        raise KeyError(path)
    return f"/static/{assets_version()}/{path}"


@router.head("/static/{of}/{path:path}")
@router.get("/static/{of}/{path:path}")
async def serve_asset(request: Request, of: str, path: str) -> Response:
    asset = assets().get(path)
    if asset is None:
        raise HTTPException(404, "There is no such file")
    # A page that was open across an update asks for the former edition: it gets what there is, and does not keep it.
    headers = {"Cache-Control": _CACHE_FOREVER if of == assets_version() else "no-store", "Vary": "Accept-Encoding"}
    if asset.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, media_type=asset.media_type, headers=headers)
    return Response(asset.data, media_type=asset.media_type, headers=headers)


def _style() -> bytes:
    """Each component's style lies beside its macro; the layers say what goes before what, whatever the order here."""
    css = _package_file("static", "css")
    components = sorted(file.name for file in _package_file("components").iterdir() if file.name.endswith(".css"))
    parts = [css.joinpath(f"{name}.css").read_bytes() for name in _LAYERS]
    parts += [_package_file("components", name).read_bytes() for name in components]
    parts += [css.joinpath(f"{name}.css").read_bytes() for name in _LATER_LAYERS]
    return b"\n".join(parts)


def _asset(ending: str, data: bytes) -> StaticFile:
    packed = gzip.compress(data, 9, mtime=0) if ending in ("css", "js", "svg") else None
    return StaticFile(data, packed, _TYPES[ending])


def _package_file(*parts: str) -> Traversable:
    return files("coterie.surfaces.web").joinpath(*parts)
