"""What personas remember of people, and keep clean. Scope: `room:<room>` and `agent:<name>`. C11 to C13"""

from coterie.modes.crowd.memories.keeper import Keeper, owner_of
from coterie.modes.crowd.memories.plain import plain_extractor

__all__ = ["Keeper", "owner_of", "plain_extractor"]
