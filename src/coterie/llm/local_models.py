"""Models on this machine: the curated list of downloads, the folder they are kept in, and how much memory there is."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.base.errors import ConfigError
from coterie.base.paths import write_atomic
from coterie.base.values import is_loopback_url, url_origin
from coterie.llm.embedded.gguf import read_metadata, trained_context
from coterie.llm.settings import EMBEDDED_MODEL, SAFE_MODEL_NAME, Target

_HUB = "https://huggingface.co"
_RESERVED_GB = 1.5
"""Memory that is left to the rest of the machine."""


class CuratedModel(BaseModel):
    """A model that Coterie offers to download."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    repository: str
    file: str
    bytes: int
    memory_gb: float
    good_at: str
    licence: str
    sha256: str = ""
    """Known beforehand; otherwise the checksum that the server announces is used."""

    def url(self, environ: Mapping[str, str] | None = None) -> str:
        """Where its file is. `HF_ENDPOINT` names a mirror, as it does for other programs."""
        env = os.environ if environ is None else environ
        return f"{(env.get('HF_ENDPOINT') or _HUB).rstrip('/')}/{self.repository}/resolve/main/{self.file}"


@cache
def curated_models() -> tuple[CuratedModel, ...]:
    text = files("coterie.llm").joinpath("local_models.toml").read_text(encoding="utf-8")
    return tuple(CuratedModel.model_validate(model) for model in tomllib.loads(text)["model"])


def memory_gb() -> float:
    """The memory of this machine, or of the container that it runs in."""
    import psutil

    total = float(psutil.virtual_memory().total)
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, float(Path(file).read_text()))
        except (OSError, ValueError):  # no container, or no limit
            continue
    return total / 1e9


def model_fits(model: CuratedModel, total_gb: float) -> bool:
    """Whether this much memory is enough for a model and the rest of the machine."""
    return model.memory_gb + _RESERVED_GB <= total_gb


@dataclass(frozen=True)
class DownloadSource:
    """A file to download: its address, the name it gets here, and what is known about it."""

    name: str
    url: str
    title: str = ""
    licence: str = ""
    sha256: str = ""


def download_source(which: str, sha256: str = "", environ: Mapping[str, str] | None = None) -> DownloadSource:
    """A model of the curated list by its name, or any GGUF file by its URL. `ConfigError` for anything else."""
    which = which.strip()
    for model in curated_models():
        if which.lower() == model.name:
            return DownloadSource(model.name, model.url(environ), model.title, model.licence, model.sha256 or sha256)
    if "://" not in which:
        names = ", ".join(model.name for model in curated_models())
        raise ConfigError(f"There is no model called {which[:80]} in the list.", f"Use one of {names}, or a URL.")
    try:
        parts = urlsplit(which)
        host = parts.hostname
    except ValueError:
        host = None
    if parts.scheme not in ("http", "https") or not host or parts.username:
        raise ConfigError("This is not a web address of a model file.", "Give one that ends in .gguf.")
    if parts.scheme == "http" and not is_loopback_url(which) and not sha256:
        raise ConfigError(
            "This address is not encrypted, so the file could be replaced on its way.",
            "Use https://, or give the SHA-256 checksum of the file as well.",
        )
    file = unquote(parts.path).rpartition("/")[2]
    if not file.lower().endswith(".gguf") or not SAFE_MODEL_NAME.fullmatch(name := file[:-5]):
        raise ConfigError("The address does not name a GGUF file.", "Give one that ends in .gguf.")
    if name.lower() == EMBEDDED_MODEL:
        raise ConfigError(f"{name} is the name of the demo model.", "Rename the file.")
    return DownloadSource(name, which, sha256=sha256)


def check_redirect(source: DownloadSource, url: str) -> None:
    """Raises `ConfigError` for an address that a server must not send a download on to: one of this machine or of its
    network link, which only the owner names, or one that is not encrypted, unless the checksum is known.
    """
    if url_origin(url) == url_origin(source.url) or is_loopback_url(source.url):
        return
    if is_loopback_url(url) or _is_link_local(url):
        raise ConfigError("The server sends the download on to an address of this machine.", "Choose another source.")
    if urlsplit(url).scheme != "https" and not source.sha256:
        raise ConfigError(
            "The server sends the download on to an address that is not encrypted.",
            "Give the SHA-256 checksum of the file, or choose another source.",
        )


def _is_link_local(url: str) -> bool:
    try:
        return ip_address(urlsplit(url).hostname or "").is_link_local
    except ValueError:
        return False


class ModelRecord(BaseModel):
    """What is written beside a downloaded file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    url: str = ""
    sha256: str = ""
    title: str = ""
    licence: str = ""


@dataclass(frozen=True)
class LocalModel:
    """A GGUF file in the folder of downloaded models."""

    name: str
    file: Path
    bytes: int
    context: int
    """The context that it was trained with."""
    record: ModelRecord

    @property
    def target(self) -> Target:
        return Target("embedded", self.name)

    @property
    def title(self) -> str:
        return self.record.title or self.name


class LocalModels:
    """The folder of downloaded models. A GGUF file that somebody puts into it is found as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> list[LocalModel]:
        found = []
        for file in sorted(self.folder.glob("*.gguf")):
            try:
                found.append(self._load(file))
            except (ConfigError, OSError):
                continue  # not a model, or removed meanwhile
        return found

    def get(self, name: str) -> LocalModel:
        file = self.folder / f"{name}.gguf"
        if not SAFE_MODEL_NAME.fullmatch(name) or not file.is_file():
            raise ConfigError(f"There is no downloaded model called {name[:80]}.", "See: coterie models list")
        return self._load(file)

    def add(self, file: Path, name: str, record: ModelRecord) -> LocalModel:
        """Take a finished file into the folder, after its header was read. `ConfigError` if it is not a GGUF file."""
        read_metadata(file)
        target = self.folder / f"{name}.gguf"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self._record_file(name), json.dumps(record.model_dump()).encode(), durable=False)
        file.replace(target)
        return self._load(target)

    def copy(self, file: Path) -> LocalModel:
        """Copy a GGUF file of this machine into the folder, without a second copy of its bytes where possible."""
        name = file.stem
        if file.suffix.lower() != ".gguf" or not SAFE_MODEL_NAME.fullmatch(name) or name.lower() == EMBEDDED_MODEL:
            raise ConfigError(f"{file.name} cannot be the file of a model.", "Give it a name such as my-model.gguf.")
        read_metadata(file)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.folder / f".{name}.copy"
        temporary.unlink(missing_ok=True)
        try:
            os.link(file.resolve(), temporary)
        except OSError:  # another file system
            shutil.copyfile(file, temporary)
        return self.add(temporary, name, ModelRecord(url=file.resolve().as_uri()))

    def remove(self, name: str) -> None:
        self.get(name).file.unlink()
        self._record_file(name).unlink(missing_ok=True)

    def _load(self, file: Path) -> LocalModel:
        name = file.stem
        try:
            record = ModelRecord.model_validate_json(self._record_file(name).read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            record = ModelRecord()
        return LocalModel(name, file, file.stat().st_size, trained_context(file), record)

    def _record_file(self, name: str) -> Path:
        return self.folder / f"{name}.json"
