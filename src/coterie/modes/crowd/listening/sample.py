"""A script spoken aloud by flite, as a WAV file: a stream to listen to, made where it is needed instead of shipped."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt

from coterie.modes.crowd.errors import AudioUnavailable
from coterie.modes.crowd.listening.sound import SAMPLE_RATE
from coterie.modes.crowd.session.script import Script

Pcm = npt.NDArray[np.int16]
_MIN_PAUSE_S = 0.9
"""The least silence between two lines."""
_SYNTHESIS_TIMEOUT_S = 60


def can_synthesise() -> bool:
    return shutil.which("flite") is not None


def synthesise(text: str, voice: str = "rms") -> Pcm:
    """A sentence, spoken."""
    flite = shutil.which("flite")
    if flite is None:
        raise AudioUnavailable("Speech is made with flite, and it is not installed.", "Install it: apt install flite")
    with tempfile.TemporaryDirectory(prefix="coterie-speech-") as folder:
        words, file = Path(folder) / "words.txt", Path(folder) / "words.wav"
        words.write_text(text, encoding="utf-8")
        subprocess.run(  # noqa: S603 - our own words, in a file
            [flite, "-voice", voice, "-f", str(words), "-o", str(file)],
            check=True,
            capture_output=True,
            timeout=_SYNTHESIS_TIMEOUT_S,
        )
        with wave.open(str(file), "rb") as spoken:
            if spoken.getframerate() != SAMPLE_RATE:
                raise AudioUnavailable(f"flite's voice {voice} does not speak at 16 kHz.", "Use rms, slt or awb.")
            return np.frombuffer(spoken.readframes(spoken.getnframes()), dtype="<i2")


def synthesise_script(script: Script, file: Path, voice: str = "rms") -> list[float]:
    """Write a script as a WAV file, each line at its time or right after the one before. When each one ended."""
    whole: list[Pcm] = []
    at, ends = 0, []
    for line in script.line:
        if not line.say:
            continue
        speech = synthesise(line.say, voice)
        start = max(round(line.at * SAMPLE_RATE), at + (round(_MIN_PAUSE_S * SAMPLE_RATE) if at else 0))
        whole += [np.zeros(start - at, dtype=np.int16), speech]
        at = start + len(speech)
        loud = np.flatnonzero(np.abs(speech.astype(np.int32)) > 500)
        ends.append((start + int(loud[-1]) if len(loud) else at) / SAMPLE_RATE)
    whole.append(np.zeros(SAMPLE_RATE, dtype=np.int16))
    # Opened first: `wave` complains on the terminal about a file that could not be opened.
    with file.open("wb") as opened, wave.open(opened, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(SAMPLE_RATE)
        written.writeframes(np.concatenate(whole).astype("<i2").tobytes())
    return ends
