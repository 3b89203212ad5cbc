"""The contract of a store for memories of personas; every backend runs it."""

from __future__ import annotations

from coterie.memory import ANYBODY, ExtractionTurn, Operation, Operations, Viewpoint
from coterie.modes.crowd.memory import PersonaStore

OWNER, ROOM = "agent:nonna_exe", "room:den"


def tell(
    store: PersonaStore,
    text: str,
    number: int = 1,
    *,
    who: str = "ana",
    owner: str = OWNER,
    room: str = ROOM,
    op: str = "ADD",
    target: str | None = None,
    about: str = "",
    said: str = "",
) -> int:
    """`text` is what is remembered of what was `said`."""
    request = store.prepare(ExtractionTurn(f"den-{number}", who, said or text, trusted=False), owner, room)
    operation = Operation.model_validate(
        {
            "op": op,
            "text": text,
            "type": "preference",
            "target": target,
            "evidence": [f"den-{number}"],
            "about": [about or who],
            "confidence": 0.8,
        }
    )
    return store.store(request, Operations(operations=[operation]))


def recall(store: PersonaStore, question: str, owner: str = OWNER, room: str = ROOM) -> list[str]:
    return [each.text for each in store.recall(Viewpoint.of(owner, room, [ANYBODY]), question, 3)]


class PersonaStoreContract:
    def test_c11_a_memory_keeps_scope_type_people_evidence_and_confidence(self, store: PersonaStore) -> None:
        assert tell(store, "ana's favourite dish is risotto with saffron") == 1
        (memory,) = store.all(OWNER, ROOM)
        assert (memory.type, memory.about, memory.sources) == ("preference", ("ana",), ("den-1",))
        assert (memory.text, memory.confidence) == ("ana's favourite dish is risotto with saffron", 0.8)
        assert store.all("agent:salt_lamp", ROOM) == []
        assert store.all(OWNER, "room:attic") == []

    def test_c11_recall_stays_in_its_persona_and_room(self, store: PersonaStore) -> None:
        tell(store, "ana's favourite dish is risotto with saffron")
        assert "risotto" in recall(store, "what is ana's favourite dish?")[0]
        assert recall(store, "what is ana's favourite dish?", owner="agent:salt_lamp") == []

    def test_c11_names_with_spaces_do_not_mix(self, store: PersonaStore) -> None:
        tell(store, "ana collects blue lamps", owner="agent:salt lamp")
        tell(store, "ana collects green lamps", owner="agent:salt_lamp")
        assert recall(store, "what lamps?", owner="agent:salt lamp") == ["ana collects blue lamps"]

    def test_c12_a_repeated_statement_adds_only_evidence(self, store: PersonaStore) -> None:
        assert tell(store, "ana loves proper sourdough bread", 1) == 1
        assert tell(store, "ana loves proper sourdough bread", 2) == 0
        (memory,) = store.all(OWNER, ROOM)
        assert set(memory.sources) == {"den-1", "den-2"}

    def test_c12_an_update_replaces_what_was_known(self, store: PersonaStore) -> None:
        tell(store, "ana lives in Graz")
        (memory,) = store.prepare(ExtractionTurn("den-2", "ana", "I moved to Linz from Graz"), OWNER, ROOM).known
        assert tell(store, "ana lives in Linz", 2, op="SUPERSEDE", target=memory.id, said="I moved to Linz") == 1
        assert "Linz" in recall(store, "where does ana live?")[0]

    def test_c12_nothing_without_evidence_and_no_claims_about_others(self, store: PersonaStore) -> None:
        assert tell(store, "ana owns a submarine", said="what a nice evening") == 0
        assert tell(store, "bo cheats at cards", about="bo") == 0
        assert tell(store, "ana lives in Linz", op="UPDATE", target="unknown") == 0
        assert store.all(OWNER, ROOM) == []

    def test_c11_what_is_forgotten_is_gone(self, store: PersonaStore) -> None:
        tell(store, "ana collects blue lamps")
        store.forget(store.all(OWNER, ROOM)[0].id)
        assert store.all(OWNER, ROOM) == []
        assert recall(store, "blue lamps") == []
