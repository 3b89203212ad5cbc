"""From sound to context: where sound comes from, when somebody speaks, what they say. No sound leaves here. C9"""

from coterie.modes.crowd.listening.ear import listened
from coterie.modes.crowd.listening.recogniser import Recogniser, recogniser_named
from coterie.modes.crowd.listening.sound import Sound, is_sound
from coterie.modes.crowd.listening.utterances import Utterance, Utterances

__all__ = ["Recogniser", "Sound", "Utterance", "Utterances", "is_sound", "listened", "recogniser_named"]
