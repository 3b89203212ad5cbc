"""C9: audio variants and the choice between their transcriptions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from coterie.modes.crowd.audio.moonshine import AudioVariant, Moonshine, Transcription
from coterie.modes.crowd.audio.source import SAMPLE_RATE, Samples


def tone(hertz: float, seconds: float = 0.5) -> Samples:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE).astype(np.float32)


def loudness(samples: Samples) -> float:
    return float(np.sqrt((samples**2).mean()))


class ScriptedRecogniser(Moonshine):
    """Returns the given transcriptions in turn."""

    def __init__(self, *hearings: Transcription) -> None:
        self._executor = ThreadPoolExecutor(1)
        self.left = list(hearings)

    def _transcribe_once(self, samples: Samples) -> Transcription:
        return self.left.pop(0)


def test_c9_stretching_lowers_the_pitch_and_keeps_the_volume() -> None:
    longer = AudioVariant(stretch=1.25).apply(tone(1_000))
    assert len(longer) == round(0.5 * SAMPLE_RATE * 1.25)
    strongest = np.abs(np.fft.rfft(longer)).argmax() * SAMPLE_RATE / len(longer)
    assert strongest == pytest.approx(800, abs=2)
    assert loudness(longer) == pytest.approx(loudness(tone(1_000)), rel=0.01)


def test_c9_stretching_adds_no_frequencies() -> None:
    longer = AudioVariant(stretch=1.07).apply(tone(6_000))
    spectrum = np.abs(np.fft.rfft(longer)) ** 2
    hertz = np.fft.rfftfreq(len(longer), 1 / SAMPLE_RATE)
    elsewhere = spectrum[np.abs(hertz - 6_000 / 1.07) > 100].sum()
    assert elsewhere / spectrum.sum() < 0.001


def test_c9_pre_emphasis_attenuates_low_frequencies() -> None:
    hearing = AudioVariant(pre_emphasis=0.5)
    assert loudness(hearing.apply(tone(200))) < 0.6 * loudness(tone(200))
    assert loudness(hearing.apply(tone(5_000))) > loudness(tone(5_000))


def test_c9_the_default_variant_leaves_the_audio_unchanged() -> None:
    sound = tone(440)
    assert (AudioVariant().apply(sound) == sound).all()


def test_c9_two_equal_transcriptions_need_no_third() -> None:
    recogniser = ScriptedRecogniser(
        Transcription("left", -0.3), Transcription("Left.", -0.2), Transcription("lift", -0.1)
    )
    assert recogniser.transcribe(tone(440)) == "Left."
    assert len(recogniser.left) == 1


def test_c9_the_best_of_three_wins_if_the_first_two_differ() -> None:
    assert (
        ScriptedRecogniser(
            Transcription("left", -0.3), Transcription("lift", -0.2), Transcription("loft", -0.1)
        ).transcribe(tone(440))
        == "loft"
    )
    assert (
        ScriptedRecogniser(
            Transcription("left", -0.1), Transcription("lift", -0.2), Transcription("loft", -0.3)
        ).transcribe(tone(440))
        == "left"
    )


def test_c9_speech_without_a_pause_is_transcribed() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("moonshine_voice")
    assert isinstance(Moonshine().transcribe(tone(200, seconds=12)), str)
