"""From sound to context: where sound comes from, when somebody speaks, what they say. No sound leaves here. C9"""

from coterie.modes.crowd.listening.ear import transcribe_stream
from coterie.modes.crowd.listening.recogniser import Recogniser, create_recogniser
from coterie.modes.crowd.listening.sound import AudioSource, is_audio_source
from coterie.modes.crowd.listening.utterances import Utterance, UtteranceDetector

__all__ = [
    "Recogniser",
    "AudioSource",
    "Utterance",
    "UtteranceDetector",
    "is_audio_source",
    "transcribe_stream",
    "create_recogniser",
]
