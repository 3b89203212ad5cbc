"""Speech recognition for streams: audio sources, voice activity detection and transcription. Audio stays local."""

from coterie.modes.crowd.audio.source import AudioSource, Utterance, UtteranceDetector
from coterie.modes.crowd.audio.transcriber import Recogniser, create_recogniser, transcribe_stream

__all__ = [
    "AudioSource",
    "Recogniser",
    "Utterance",
    "UtteranceDetector",
    "create_recogniser",
    "transcribe_stream",
]
