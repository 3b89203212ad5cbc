from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from posixpath import dirname, join, normpath

import httpx
import pytest

from coterie.surfaces import web as package
from coterie.surfaces.web.shared.assets import asset_url, assets, assets_version, module_urls
from tests.surfaces.web.conftest import Web

HERE = Path(package.__file__).parent


def test_vendored_files_are_what_the_manifest_says() -> None:
    manifest = tomllib.loads((HERE / "vendor.toml").read_text())
    listed = {path: digest for part in manifest.values() for path, digest in part["files"].items()}
    for path, digest in listed.items():
        assert hashlib.sha256((HERE / path).read_bytes()).hexdigest() == digest, path
    others = {f"static/vendor/{file.name}" for file in (HERE / "static" / "vendor").glob("*.*")}
    ours = {path for path in others if path.endswith((".txt", "mark.svg"))}
    assert others - ours == {path for path in listed if path.startswith("static/")}


async def test_a_file_may_be_kept_for_ever_and_is_compressed(web: Web) -> None:
    answer = await web.client.get(asset_url("app.css"))
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-encoding"] == "gzip"
    plain = await web.client.get(asset_url("app.css"), headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == assets()["app.css"].data


async def test_a_former_edition_is_not_kept(web: Web) -> None:
    answer = await web.client.get("/static/0000/app.css")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")


@pytest.mark.parametrize(
    "path",
    ["nothing.js", "..%2fserver.py", "shared/..%2f..%2fserver.py", "%2e%2e/server.py", "vendor/htmx.LICENSE.txt"],
)
async def test_only_what_is_listed_is_served(web: Web, path: str) -> None:
    answer = await web.client.send(
        web.client.build_request("GET", httpx.URL(f"http://127.0.0.1:8000/static/{assets_version()}/{path}"))
    )
    assert answer.status_code in (404, 307)
    assert b"import" not in answer.content


def test_scripts_import_only_neighbours_that_exist() -> None:
    scripts = [path for path in assets() if path.endswith(".js") and not path.startswith("vendor/")]
    assert len(scripts) > 20
    for path in scripts:
        for imported in re.findall(r"(?:from|import\() ?\"([^\"]+)\"", assets()[path].data.decode()):
            assert normpath(join(dirname(path), imported)) in assets(), f"{path} imports {imported}"


def test_a_page_can_fetch_all_modules_at_once() -> None:
    names = {path.rpartition("/")[2] for path in module_urls("story/chat.js")}
    assert {"chat.js", "timeline.js", "live_updates.js", "live_connection.js", "toast.js", "dom.js"} <= names


def test_no_page_has_inline_script_style_or_handler() -> None:
    for file in HERE.rglob("*.html"):
        text = file.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), file
        assert not re.search(r"<style|\sstyle=|\son(?!ly_icon)\w+=|hx-on|hx-vals=.js:|\|\s*safe", text), file
