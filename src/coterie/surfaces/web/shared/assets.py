"""Style sheets, scripts and fonts, served under an address that contains a hash of all of them.

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
from posixpath import dirname, join, normpath

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)
FEATURES = ("shared", "home", "story", "characters", "draft", "crowd", "desk", "memory", "settings", "ops")
"""Packages with a `templates` and a `static` folder."""
_FIRST_LAYERS = ("shared/reset", "shared/tokens", "shared/base")
_LAST_LAYERS = ("shared/shell", "story/story", "shared/pages", "shared/utilities")
"""Style sheets of every page, joined into `app.css`. The others are served alone, for the pages that link them."""
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_IMPORTS = re.compile(r'^import .*?from "(\.\.?/(?!vendor/)[\w./]+)";$', re.MULTILINE)
_CACHE_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    data: bytes
    compressed: bytes | None
    """Compressed, where that is worth it."""
    media_type: str


@cache
def assets() -> dict[str, StaticFile]:
    """All static files by path: `app.css`, `vendor/FILE`, and `FEATURE/FILE` for scripts and further style sheets."""
    files_by_path = {"app.css": _asset("css", _style())}
    joined = {f"{path}.css" for path in (*_FIRST_LAYERS, *_LAST_LAYERS)}
    folders = {
        "vendor": _package_file("static", "vendor"),
        **{name: _package_file(name, "static") for name in FEATURES},
    }
    for name, folder in folders.items():
        for file in folder.iterdir() if folder.is_dir() else ():
            path, ending = f"{name}/{file.name}", file.name.rpartition(".")[2]
            if ending in _TYPES and path not in joined:
                files_by_path[path] = _asset(ending, file.read_bytes())
    return files_by_path


@cache
def assets_version() -> str:
    """A hash of all static files."""
    digest = hashlib.sha256()
    for path, asset in sorted(assets().items()):
        digest.update(path.encode() + asset.data)
    return digest.hexdigest()[:16]


@cache
def module_urls(path: str) -> list[str]:
    """A script and all that it imports, so that a page can fetch them at once instead of one after another."""
    scripts: list[str] = []
    queue = [path]
    while queue:
        script = queue.pop(0)
        if script not in scripts:
            scripts.append(script)
            text = assets()[script].data.decode()
            queue += [normpath(join(dirname(script), name)) for name in _IMPORTS.findall(text)]
    return [asset_url(script) for script in scripts]


def asset_url(path: str) -> str:
    """The address of a file."""
    if path not in assets():
        raise KeyError(path)
    return f"/static/{assets_version()}/{path}"


@router.head("/static/{of}/{path:path}")
@router.get("/static/{of}/{path:path}")
async def serve_asset(request: Request, of: str, path: str) -> Response:
    asset = assets().get(path)
    if asset is None:
        raise HTTPException(404, "There is no such file")
    # A page that was open during an update asks for the old version: it gets the present file, uncached.
    headers = {"Cache-Control": _CACHE_FOREVER if of == assets_version() else "no-store", "Vary": "Accept-Encoding"}
    if asset.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, media_type=asset.media_type, headers=headers)
    return Response(asset.data, media_type=asset.media_type, headers=headers)


def _style() -> bytes:
    """The joined style sheets. Cascade layers, not this order, decide which rule wins."""
    components = sorted(
        file.name for file in _package_file("shared", "components").iterdir() if file.name.endswith(".css")
    )
    parts = [_layer(path) for path in _FIRST_LAYERS]
    parts += [_package_file("shared", "components", name).read_bytes() for name in components]
    parts += [_layer(path) for path in _LAST_LAYERS]
    return b"\n".join(parts)


def _layer(path: str) -> bytes:
    feature, _, name = path.partition("/")
    return _package_file(feature, "static", f"{name}.css").read_bytes()


def _asset(ending: str, data: bytes) -> StaticFile:
    packed = gzip.compress(data, 9, mtime=0) if ending in ("css", "js", "svg") else None
    return StaticFile(data, packed, _TYPES[ending])


def _package_file(*parts: str) -> Traversable:
    return files("coterie.surfaces.web").joinpath(*parts)
