"""What personas remember of people in the chat: extraction, the stores that it can be kept in, and recall."""

from coterie.modes.crowd.memory.extraction import ModelExtractor, extract_by_rules, model_extractor
from coterie.modes.crowd.memory.mem0_store import Mem0Store
from coterie.modes.crowd.memory.persona_memory import PersonaMemory
from coterie.modes.crowd.memory.stores import BuiltInStore, PersonaStore, StoredMemory

__all__ = [
    "BuiltInStore",
    "Mem0Store",
    "ModelExtractor",
    "PersonaMemory",
    "PersonaStore",
    "StoredMemory",
    "extract_by_rules",
    "model_extractor",
]
