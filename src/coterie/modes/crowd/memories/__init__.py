"""What personas remember of people, and keep clean. Scope: `room:<room>` and `agent:<name>`. C11 to C13"""

from coterie.modes.crowd.memories.keeper import Keeper
from coterie.modes.crowd.memories.plain import plain_extractor
from coterie.modes.crowd.personas.character import owner_of

__all__ = ["Keeper", "owner_of", "plain_extractor"]
