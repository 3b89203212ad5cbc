"""What was said: a port of one call, and whoever stands behind it.

Moonshine's tiny English model comes in its wheel and is the default; faster-whisper is for whoever has its weights on
this machine. Neither is allowed to fetch anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.listening.moonshine import Moonshine
from coterie.modes.crowd.listening.utterances import Samples


class Recogniser(Protocol):
    name: str

    def transcribe(self, samples: Samples) -> str:
        """What is said in 16 kHz mono sound. Takes its time: call it beside the event loop."""
        ...


class Whisper:
    """faster-whisper, from a folder with its weights."""

    def __init__(self, weights: Path) -> None:
        try:
            from faster_whisper import WhisperModel
        except ImportError:
            raise MissingExtra("whisper", "faster-whisper") from None
        if not (weights / "model.bin").is_file():
            raise AudioUnavailable(
                f"There are no faster-whisper weights in {weights}.", "Name a folder that holds its model.bin."
            )
        self.name = f"whisper:{weights.name}"
        self._model: Any = WhisperModel(str(weights), compute_type="int8", local_files_only=True)

    def transcribe(self, samples: Samples) -> str:
        found, _ = self._model.transcribe(samples, beam_size=1, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in found).strip()


def create_recogniser(name: str = "moonshine") -> Recogniser:
    """`moonshine`, or `whisper:FOLDER`."""
    kind, _, folder = name.partition(":")
    if kind == "moonshine" and not folder:
        return Moonshine()
    if kind == "whisper" and folder:
        return Whisper(Path(folder).expanduser())
    raise AudioUnavailable(
        f"There is no recogniser {name}.", "Say moonshine, or whisper:FOLDER with its weights in it."
    )
