"""M2, M6, C5: which memories from elsewhere a persona recalls in a chat that anybody may read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.clock import SystemClock
from coterie.characters.identity import Identity
from coterie.characters.people import People
from coterie.characters.service import OWNER, Characters
from coterie.eventstore import NewEvent, Store, Superseded
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.llm.router import Models
from coterie.llm.settings import ModelsSettings
from coterie.memory import Memory
from coterie.modes.crowd import ChatAuthor, ChatPost, CrowdRoom, CrowdService, CrowdSettings
from coterie.modes.crowd.errors import BadCrowdConfig
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.personas import character_id, persona_from_character
from coterie.modes.crowd.prompts import LineRequest, build_instructions
from coterie.modes.crowd.session.replay import Replay, last_session_events
from tests.modes.crowd.test_service import ROOM, TALE

STORY = "room:story"
MARA = Identity(id="mara", name="Mara Oke", persona="Mara keeps a lighthouse, and repairs radios.")


class Attic:
    def __init__(self, folder: Path) -> None:
        (folder / "configs" / "rooms").mkdir(parents=True)
        (folder / "configs" / "rooms" / "attic.toml").write_text(ROOM)
        self.tale = folder / "tale.toml"
        self.tale.write_text(TALE)
        self.clock = SystemClock()
        self.store = Store.open(folder / "coterie.db", projections=all_projections())
        self.memory = Memory(self.store, clock=self.clock)
        self.asked: list[str] = []
        player = ReplayProvider("embedded", default=self._answer)
        settings = ModelsSettings(roles={"crowd": ("embedded/script",)})
        self.models = Models(settings, store=self.store, providers={"embedded": player})
        self.service = CrowdService(
            self.store, self.memory, self.models, self.clock, folder / "configs", CrowdSettings()
        )

    def _answer(self, request: CompletionRequest) -> RecordedCall:
        text = "\n".join(message.text for message in request.prompt.messages)
        self.asked.append(text)
        if "@" not in request.prompt.messages[-1].text:
            return RecordedCall(say=f"well, number {len(self.asked)}")
        return RecordedCall(say="under the third one" if "third stone" in text else "no idea, sorry")

    def live_through(self, *people: str, **more: object) -> None:
        text = "the spare key is under the third stone"
        self.memory.add(text, owner=MARA.id, room=STORY, speaker="Ana", witnesses=(MARA.id, *people), **more)

    def prompt(self) -> str:
        """The instructions of Mara's model when a viewer asks her."""
        persona = persona_from_character(MARA)
        persona_memory = PersonaMemory(
            self.memory,
            "attic",
            [persona.name],
            owners={persona.name: MARA.id},
            people=People(self.store, self.clock).ids,
        )
        brief = LineRequest(
            persona, 1, "mention", 1, recipient="ana", answered_text="where is the spare key?", recipient_is_person=True
        )
        return build_instructions(replace(brief, memories=tuple(persona_memory.recall(brief))))

    async def ask(self, room: CrowdRoom, text: str) -> str:
        """What Mara answers in the chat."""
        while room.live is None or room.live.session.trends is None:
            await asyncio.sleep(0.02)
        author = ChatAuthor(name="Ana", kind="human")
        question = await room.gateway.post(ChatPost(id="q1", room="attic", author=author, text=f"@mara_oke {text}"))
        while True:
            for message in await room.gateway.after(question.number):
                if message.author.name == "mara_oke" and message.reply_to == question.id:
                    return message.text
            await asyncio.sleep(0.02)


@pytest.fixture
async def attic(tmp_path: Path) -> AsyncIterator[Attic]:
    fixture = Attic(tmp_path)
    yield fixture
    await fixture.service.close()
    await fixture.models.close()
    fixture.store.close()


async def test_m2_memories_from_a_story_are_recalled_in_the_crowd(attic: Attic) -> None:
    attic.live_through(OWNER)
    assert 'You remember: "Ana: the spare key is under the third stone"' in attic.prompt()


async def test_m2_private_memories_are_not_recalled_in_public(attic: Attic) -> None:
    attic.live_through(OWNER, private=True)
    assert "third stone" not in attic.prompt()


async def test_m2_a_memory_shared_with_one_person_is_not_recalled_where_others_read(attic: Attic) -> None:
    attic.live_through(OWNER)
    await People(attic.store, attic.clock).invite("Bo", minutes=5)
    assert "third stone" not in attic.prompt()


async def test_m2_open_memories_are_recalled_anywhere(attic: Attic) -> None:
    await People(attic.store, attic.clock).invite("Bo", minutes=5)
    attic.live_through(OWNER, disclosure="open")
    assert "third stone" in attic.prompt()


async def test_m2_m6_room_bound_or_rewound_memories_are_not_recalled(attic: Attic) -> None:
    attic.live_through(OWNER, disclosure="room")
    assert "third stone" not in attic.prompt()
    attic.memory.add("the spare key has a red ribbon", owner=MARA.id, room="room:b", witnesses=(MARA.id, OWNER))
    assert "red ribbon" in attic.prompt()
    attic.store.append_blocking([NewEvent("room:b", Superseded(drop=((1, attic.store.reader.head("room:b")),)))])
    assert "red ribbon" not in attic.prompt()


async def test_c5_c17_a_character_in_a_room_remembers_and_the_session_replays(
    attic: Attic,
) -> None:
    await Characters(attic.store).save(MARA)
    attic.live_through(OWNER)
    persona = await attic.service.add_member("attic", MARA)
    assert (persona.name, character_id(persona)) == ("mara_oke", "mara")
    assert await attic.service.add_member("attic", MARA) == persona
    room = await attic.service.start("attic", str(attic.tale), line_source="model")
    assert "mara_oke" in [each.name for each in room.authored_personas]
    assert await attic.ask(room, "where is the spare key?") == "@Ana under the third one"
    # What came to mind is not part of a decision, and the line is in the record: forgetting it changes nothing.
    await attic.service.stop("attic")
    attic.store.append_blocking([NewEvent(STORY, Superseded(drop=((1, attic.store.reader.head(STORY)),)))])
    replayed = Replay(
        last_session_events(attic.store.reader, "attic"), attic.service.configs.moderator(room.rules)
    ).run()
    assert replayed.identical
    assert any("third one" in message.text for message in replayed.messages)


async def test_c5_a_name_of_another_persona_is_refused(attic: Attic) -> None:
    other = Identity(name="Salt Lamp", persona="Somebody else altogether.")
    with pytest.raises(BadCrowdConfig, match="already"):
        await attic.service.add_member("attic", other)
