"""What personas remember of people, and keep clean. Scope: `room:<room>` and `agent:<name>`. C11 to C13"""

from coterie.modes.crowd.memories.keeper import PersonaMemory
from coterie.modes.crowd.memories.plain import extract_by_rules
from coterie.modes.crowd.personas.character import memory_owner

__all__ = ["PersonaMemory", "memory_owner", "extract_by_rules"]
