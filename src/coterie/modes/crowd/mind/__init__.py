"""How personas decide, each for itself, from what everybody can hear. C6, C8, C15"""

from coterie.modes.crowd.mind.decision import Decision, Mind
from coterie.modes.crowd.mind.hearing import Hearing
from coterie.modes.crowd.mind.scene import Scene
from coterie.modes.crowd.mind.trending import Trending

__all__ = ["Decision", "Hearing", "Mind", "Scene", "Trending"]
