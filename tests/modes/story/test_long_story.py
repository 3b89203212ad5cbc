"""A story of 60 turns over three places and four days with two guests: everything at its end is as written here.

After 20 random rewinds and forks it still is, and at each point of it everything is as it was then.
"""

from __future__ import annotations

import random
from typing import Any

from coterie.characters.service import OWNER
from tests.modes.story.conftest import ScriptedModel, StoryHarness

EXCHANGES = 30
MOVES = {
    5: "We walk to the harbour.",
    8: "The next morning, we wake.",
    12: "We climb to the watchtower.",
    16: "The next morning, we wake.",
    20: "We walk back to the harbour.",
    24: "The next morning, we wake.",
    28: "We walk back to the lighthouse.",
}
"""Exchange → the words that change the place or the day."""
JOINS = {7: "Theo", 14: "Ida"}
LEAVES = {18: "Theo"}
POSTURES = {3: ("Mara", "kneeling"), 22: ("Ida", "leaning on the rail"), 29: ("Ana", "sitting on the step")}
SECRETS = {10: "The ferry sank in March", 15: "Ana's sister is alive", 26: "The lens is cracked"}
"""Exchange → what Ana tells those present."""

END: dict[str, Any] = {
    "place": "the lighthouse",
    "clock": "2030-05-04 08:50",
    "guests": ["Ida"],
    "postures": {"Ana": "sitting on the step", "Mara": "", "Ida": ""},
    "affinity": {"Mara": 80, "Ida": 66},
    "summary": {"Mara": "After scene 7.", "Ida": "After scene 7."},
    "secrets": {"Mara": [10, 15, 26], "Theo": [10, 15], "Ida": [15, 26]},
    "heard": {"Mara": (0, 29), "Theo": (7, 17), "Ida": (14, 29)},
}
"""The expectation, written by hand; `heard` is the first and the last exchange that somebody was there for."""


class LongStory:
    def __init__(self, harness: StoryHarness, script: ScriptedModel) -> None:
        self.harness = harness
        self.script = script
        self.ids: dict[str, str] = {}
        self.room = ""
        self.replies: list[str] = []
        self.views: list[dict[str, Any]] = []

    async def play(self) -> None:
        for name in ("Mara", "Theo", "Ida"):
            self.ids[name] = (await self.harness.create_character(name)).id
        mara = self.harness.characters.get(self.ids["Mara"])
        self.room = await self.harness.start_chat(mara, time="2030-05-01T09:00:00Z")
        scene = 0
        for number in range(EXCHANGES):
            if number in JOINS:
                await self.harness.story.invite(self.room, self.ids[JOINS[number]])
            if number in LEAVES:
                await self.harness.story.remove_guest(self.room, self.ids[LEAVES[number]])
            if number in JOINS or number in LEAVES:
                self.views[-1] = self.view(self.room)  # it happened before the next turn: it belongs to the last one
            scene += number in MOVES
            who, how = POSTURES.get(number, ("", ""))
            present = list(self._names_present())
            self.script.shapes = {
                "SceneSummary": {"summary": f"Scene {scene} passed.", "relationship": f"After scene {scene}."},
                "TurnAnalysis": {
                    "pairs": [{"of": name, "toward": "Ana", "affinity_delta": 1} for name in present],
                    "minutes": 10,
                    "activities": [{"who": who, "posture": how}] if who else [],
                    "memories": [{"text": SECRETS[number]}] if number in SECRETS else [],
                },
            }
            words = MOVES.get(number) or (f"{SECRETS[number]}." if number in SECRETS else f"I say sentence {number}.")
            self.script.replies = [f"I answer sentence {number}."]
            begun = await self.harness.say(self.room, words, speaker=present[number % len(present)])
            self.replies.append(begun.reply)
            self.views.append(self.view(self.room))

    def _names_present(self) -> list[str]:
        names = {character: name for name, character in self.ids.items()}
        return [names[one] for one in self.harness.story.chats.chat(self.room).characters]

    def view(self, room: str) -> dict[str, Any]:
        """What the expectation is about, of a chat or a fork of it."""
        story, names = self.harness.story, {character: name for name, character in self.ids.items()} | {OWNER: "Ana"}
        details, chat = story.details(room), story.chats.chat(room)
        memories = {name: self.harness.memories_of(character, room) for name, character in self.ids.items()}
        felt = {names[edge.of]: edge for edge in details.edges if edge.toward == OWNER}
        assert details.scene is not None
        return {
            "place": details.scene.place,
            "clock": f"{chat.clock:%Y-%m-%d %H:%M}",
            "guests": [names[guest] for guest in chat.guests],
            "postures": {names[who]: activity.posture for who, activity in details.activities.items()},
            "affinity": {name: edge.affinity for name, edge in felt.items()},
            "summary": {name: edge.summary for name, edge in felt.items()},
            "secrets": {name: [n for n, text in SECRETS.items() if text in known] for name, known in memories.items()},
            "heard": {
                name: (heard[0], heard[-1])
                for name, known in memories.items()
                if (heard := [n for n in range(EXCHANGES) if f"I answer sentence {n}." in known])
            },
            "texts": self.harness.texts(room),
            "memories": memories,
        }


async def test_s5_s14_s15_s23_s24_sixty_turns_end_as_written_and_stay_so(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    story = LongStory(harness, script)
    await story.play()
    end = story.view(story.room)
    assert len(end["texts"]) == 2 * EXCHANGES
    assert {name: end[name] for name in END} == END
    # Everybody remembers every exchange between the first and the last that they heard, and no other.
    for name, (first, last) in END["heard"].items():
        heard = [n for n in range(EXCHANGES) if f"I answer sentence {n}." in end["memories"][name]]
        assert heard == list(range(first, last + 1))
    chance = random.Random(4)
    for _ in range(20):
        at = chance.randrange(EXCHANGES)
        if chance.random() < 0.5:
            await harness.story.rewind(story.room, story.replies[at])
            assert story.view(story.room) == story.views[at], at
            await harness.story.undo_rewind(story.room)
        else:
            fork = await harness.story.fork(story.room, story.replies[at])
            assert story.view(fork.room) == story.views[at], at
        assert story.view(story.room) == end
