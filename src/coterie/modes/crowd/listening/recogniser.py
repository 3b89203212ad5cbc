"""What was said: a port of one call, and whoever stands behind it.

Moonshine's tiny English model comes in its wheel and is the default; faster-whisper is for whoever has its weights on
this machine. Neither is allowed to fetch anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coterie.base.errors import MissingExtra
from coterie.modes.crowd.errors import NoSound
from coterie.modes.crowd.listening.sound import RATE
from coterie.modes.crowd.listening.utterances import Samples

_AROUND_S = 0.3
_NOISE = 0.001
_LOUD = 0.9
_MOST_LOUDER = 20.0


class Recogniser(Protocol):
    name: str

    def transcribe(self, samples: Samples) -> str:
        """What is said in 16 kHz mono sound. Takes its time: call it beside the event loop."""
        ...


class Moonshine:
    name = "moonshine-tiny-en"

    def __init__(self) -> None:
        try:
            from moonshine_voice import get_assets_path
            from moonshine_voice.moonshine_api import ModelArch
            from moonshine_voice.transcriber import Transcriber
        except ImportError:
            raise MissingExtra("audio", "Understanding what a stream says") from None
        weights = Path(get_assets_path()) / "tiny-en"
        if not weights.is_dir():
            raise NoSound(
                "This moonshine-voice carries no weights.", 'Install the one that does: pip install "coterie[audio]"'
            )
        # We have cut the sound into utterances already: its own detection would do the work again.
        options = {"vad_threshold": "0", "return_audio_data": "false", "identify_speakers": "false"}
        self._model: Any = Transcriber(weights, ModelArch.TINY, options=options)

        self._hush = np.random.default_rng(0)

    def transcribe(self, samples: Samples) -> str:
        # No recording it was taught with is perfectly silent: with a little noise it mishears less.
        heard = np.pad(_loud(samples), round(_AROUND_S * RATE))
        heard = heard + self._hush.normal(0, _NOISE, len(heard)).astype(np.float32)
        lines = self._model.transcribe_without_streaming(heard.tolist(), RATE).lines
        return " ".join(line.text.strip() for line in lines).strip()


def _loud(samples: Samples) -> Samples:
    """As loud as it may be: a quiet microphone is no worse understood than a loud one."""
    peak = float(np.abs(samples).max(initial=0.0))
    return samples * np.float32(min(_LOUD / peak, _MOST_LOUDER)) if peak else samples


class Whisper:
    """faster-whisper, from a folder with its weights."""

    def __init__(self, weights: Path) -> None:
        try:
            from faster_whisper import WhisperModel
        except ImportError:
            raise MissingExtra("whisper", "faster-whisper") from None
        if not (weights / "model.bin").is_file():
            raise NoSound(
                f"There are no faster-whisper weights in {weights}.", "Name a folder that holds its model.bin."
            )
        self.name = f"whisper:{weights.name}"
        self._model: Any = WhisperModel(str(weights), compute_type="int8", local_files_only=True)

    def transcribe(self, samples: Samples) -> str:
        found, _ = self._model.transcribe(samples, beam_size=1, condition_on_previous_text=False)
        return " ".join(segment.text.strip() for segment in found).strip()


def recogniser_named(name: str = "moonshine") -> Recogniser:
    """`moonshine`, or `whisper:FOLDER`."""
    kind, _, folder = name.partition(":")
    if kind == "moonshine" and not folder:
        return Moonshine()
    if kind == "whisper" and folder:
        return Whisper(Path(folder).expanduser())
    raise NoSound(f"There is no recogniser {name}.", "Say moonshine, or whisper:FOLDER with its weights in it.")
