"""The contract of `Log`. A backend's test module subclasses this and provides the fixture `log`."""

from __future__ import annotations

import asyncio

import pytest

from bench.lib.sample_events import SampleFeeling, SampleTurn
from coterie.base.errors import BadPoint, Conflict
from coterie.eventstore import AnyEvent, Log, NewEvent, Rewound


def turn_event(room: str, text: str, *, key: str | None = None, turn: str | None = None) -> NewEvent:
    return NewEvent(room, SampleTurn(turn=text, speaker="mara", text=text), actor="mara", key=key, turn=turn)


def turn_texts(events: list[AnyEvent]) -> list[str]:
    return [event.payload.text for event in events if isinstance(event.payload, SampleTurn)]


class LogContract:
    async def test_an_append_numbers_events_within_their_stream_and_over_all(self, log: Log) -> None:
        events = await log.append(
            [turn_event("room:a", "one"), turn_event("room:b", "two"), turn_event("room:a", "three")]
        )
        assert [event.seq for event in events] == [1, 1, 2]
        assert [event.id for event in events] == sorted(event.id for event in events)
        assert await log.head("room:a") == 2
        assert await log.head("room:nowhere") == 0

    async def test_appended_events_are_read_back_completely(self, log: Log) -> None:
        draft = NewEvent("room:a", SampleTurn(turn="t", speaker="teo", text="naïve ☃ \U0001f600"), "teo", 7, "k", "t")
        (event,) = await log.append([draft])
        (again,) = await log.read("room:a")
        assert again == event
        assert (again.actor, again.cause, again.key, again.turn) == ("teo", 7, "k", "t")
        assert again.payload == draft.payload
        assert again.ts.tzinfo is not None

    async def test_reading_pages_and_filters(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(5)])
        await log.append(
            [NewEvent("room:a", SampleFeeling(of="mara", toward="you", delta=1)), turn_event("room:b", "elsewhere")]
        )
        assert turn_texts(await log.read("room:a", after=3)) == ["3", "4"]
        assert turn_texts(await log.read("room:a", limit=2)) == ["0", "1"]
        assert turn_texts(await log.read("room:a", limit=2, kinds=[SampleTurn.kind], newest_first=True)) == ["4", "3"]
        assert len(await log.read()) == 7
        assert [event.kind for event in await log.read(kinds=[SampleFeeling.kind])] == [SampleFeeling.kind]
        assert await log.read("room:a", kinds=[]) == []

    async def test_an_append_is_all_or_nothing(self, log: Log) -> None:
        await log.append([turn_event("room:a", "one")])
        with pytest.raises(Conflict):
            await log.append([turn_event("room:a", "two"), turn_event("room:b", "three")], expect={"room:b": 5})
        assert await log.head("room:a") == 1
        assert await log.head("room:b") == 0

    async def test_a_wrong_expected_number_is_refused(self, log: Log) -> None:
        await log.append([turn_event("room:a", "one")], expect={"room:a": 0})
        with pytest.raises(Conflict, match="its last is 1, not 0"):
            await log.append([turn_event("room:a", "two")], expect={"room:a": 0})
        await log.append([turn_event("room:a", "two")], expect={"room:a": 1})

    async def test_one_of_many_appends_with_the_same_expected_number_succeeds(self, log: Log) -> None:
        tries = await asyncio.gather(
            *(log.append([turn_event("room:a", str(n))], expect={"room:a": 0}) for n in range(16)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, list) for result in tries) == 1
        assert sum(isinstance(result, Conflict) for result in tries) == 15
        assert await log.head("room:a") == 1

    async def test_a_repeated_key_returns_the_first_events(self, log: Log) -> None:
        batch = [
            turn_event("room:a", "one", key="k1"),
            turn_event("room:a", "and more"),
            turn_event("room:b", "two", key="k2"),
        ]
        first = await log.append(batch)
        again = await log.append(batch, expect={"room:a": 0})
        assert again == first
        assert len(await log.read()) == 3

    async def test_a_key_of_another_append_is_refused(self, log: Log) -> None:
        await log.append([turn_event("room:a", "one", key="k1")])
        with pytest.raises(Conflict, match="key"):
            await log.append([turn_event("room:a", "one", key="k1"), turn_event("room:a", "new", key="k2")])
        assert await log.head("room:a") == 1

    async def test_duplicate_keys_sent_at_once_append_once(self, log: Log) -> None:
        results = await asyncio.gather(*(log.append([turn_event("room:a", "one", key="same")]) for _ in range(32)))
        assert len({events[0].id for events in results}) == 1
        assert len(await log.read()) == 1

    async def test_order_per_stream_holds_with_16_concurrent_writers(self, log: Log) -> None:
        async def write(writer: int) -> None:
            for number in range(25):
                await log.append(
                    [turn_event("room:shared", f"{writer}:{number}"), turn_event(f"room:{writer}", str(number))]
                )

        await asyncio.gather(*map(write, range(16)))
        shared = await log.read("room:shared")
        assert [event.seq for event in shared] == list(range(1, 401))
        assert [event.id for event in shared] == sorted(event.id for event in shared)
        for writer in range(16):
            mine = [text.split(":")[1] for text in turn_texts(shared) if text.split(":")[0] == str(writer)]
            assert mine == [str(number) for number in range(25)]
            assert turn_texts(await log.read(f"room:{writer}")) == [str(number) for number in range(25)]

    async def test_the_tail_gives_old_and_then_new_events(self, log: Log) -> None:
        await log.append([turn_event("room:a", "before")])
        tail = log.tail()
        assert turn_texts([await anext(tail)]) == ["before"]
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        await log.append([turn_event("room:a", "after")])
        assert turn_texts([await asyncio.wait_for(waiting, 5)]) == ["after"]

    async def test_the_tail_misses_nothing_under_load(self, log: Log) -> None:
        async def write() -> None:
            for number in range(200):
                await log.append([turn_event("room:a", str(number))])

        async def follow() -> list[str]:
            seen: list[str] = []
            async for event in log.tail():
                seen += turn_texts([event])
                if len(seen) == 200:
                    return seen
            return seen

        _, seen = await asyncio.gather(write(), asyncio.wait_for(follow(), 30))
        assert seen == [str(number) for number in range(200)]

    async def test_s23_a_rewind_deactivates_and_deletes_nothing(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(6)])
        impact = await log.preview_rewind("room:a", 2)
        assert (turn_texts(list(impact.dropped)), list(impact.restored)) == (["2", "3", "4", "5"], [])
        await log.rewind("room:a", 2, actor="you")
        assert turn_texts(await log.history("room:a")) == ["0", "1"]
        assert len(await log.read("room:a", kinds=[SampleTurn.kind])) == 6
        await log.append([turn_event("room:a", "instead")])
        assert turn_texts(await log.history("room:a")) == ["0", "1", "instead"]

    async def test_s23_a_redo_is_possible_until_there_are_new_events(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(4)])
        await log.rewind("room:a", 1)
        event = await log.redo("room:a")
        assert event.payload == Rewound(to=4, redo=True)
        assert turn_texts(await log.history("room:a")) == ["0", "1", "2", "3"]
        with pytest.raises(BadPoint, match="nothing to redo"):
            await log.redo("room:a")
        await log.rewind("room:a", 1)
        await log.append([turn_event("room:a", "new")])
        with pytest.raises(BadPoint, match="Fork"):
            await log.redo("room:a")

    async def test_s23_a_fork_restores_what_a_late_redo_refuses(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(4)])
        rewound = await log.rewind("room:a", 1)
        await log.append([turn_event("room:a", "new")])
        await log.fork("room:a", rewound.seq - 1, "room:b")
        assert turn_texts(await log.history("room:b")) == ["0", "1", "2", "3"]
        assert turn_texts(await log.history("room:a")) == ["0", "new"]

    async def test_a_rewind_past_another_rewind_restores_the_events_active_then(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(4)])
        await log.rewind("room:a", 1)
        await log.append([turn_event("room:a", "new")])
        await log.rewind("room:a", 3)
        assert turn_texts(await log.history("room:a")) == ["0", "1", "2"]

    @pytest.mark.parametrize("to", [-1, 3, 99])
    async def test_a_rewind_to_a_missing_position_is_refused(self, log: Log, to: int) -> None:
        await log.append([turn_event("room:a", "one"), turn_event("room:a", "two")])
        with pytest.raises(BadPoint):
            await log.rewind("room:a", to)
        assert await log.head("room:a") == 2

    async def test_s22_a_superseded_reply_becomes_inactive_and_can_be_restored(self, log: Log) -> None:
        await log.append([turn_event("room:a", "question", turn="t1"), turn_event("room:a", "first", turn="r1")])
        first = await log.turn_seqs("room:a", "r1")
        await log.supersede("room:a", drop=first)
        await log.append([turn_event("room:a", "second", turn="r2")])
        assert turn_texts(await log.history("room:a")) == ["question", "second"]
        await log.supersede("room:a", drop=await log.turn_seqs("room:a", "r2"), restore=first)
        assert turn_texts(await log.history("room:a")) == ["question", "first"]

    async def test_superseding_missing_events_is_refused(self, log: Log) -> None:
        await log.append([turn_event("room:a", "one")])
        with pytest.raises(BadPoint):
            await log.supersede("room:a", drop=[7])
        with pytest.raises(BadPoint):
            await log.supersede("room:a", restore=[0])

    async def test_s24_a_fork_shares_only_earlier_events(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(4)])
        await log.fork("room:a", 2, "room:b")
        await log.append([turn_event("room:a", "only a"), turn_event("room:b", "only b")])
        assert turn_texts(await log.history("room:b")) == ["0", "1", "only b"]
        assert turn_texts(await log.history("room:a")) == ["0", "1", "2", "3", "only a"]
        assert {event.stream for event in await log.history("room:b")} == {"room:b"}
        await log.rewind("room:a", 1)
        assert turn_texts(await log.history("room:b")) == ["0", "1", "only b"]

    async def test_s24_a_fork_of_a_fork_and_a_rewind_into_inherited_events(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(4)])
        await log.fork("room:a", 3, "room:b")
        await log.append([turn_event("room:b", "b", turn="tb")])
        await log.fork("room:b", await log.head("room:b"), "room:c")
        await log.append([turn_event("room:c", "c")])
        assert turn_texts(await log.history("room:c")) == ["0", "1", "2", "b", "c"]
        assert await log.turn_seqs("room:c", "tb") == [5]
        await log.rewind("room:c", 1)
        await log.append([turn_event("room:c", "again")])
        assert turn_texts(await log.history("room:c")) == ["0", "again"]
        assert turn_texts(await log.history("room:b")) == ["0", "1", "2", "b"]

    async def test_a_fork_into_an_existing_stream_or_from_a_missing_position_is_refused(self, log: Log) -> None:
        await log.append([turn_event("room:a", "one"), turn_event("room:b", "two")])
        with pytest.raises(BadPoint, match="already exists"):
            await log.fork("room:a", 1, "room:b")
        with pytest.raises(BadPoint):
            await log.fork("room:a", 5, "room:c")
        assert await log.head("room:c") == 0

    async def test_s25_a_reset_deactivates_everything_and_can_be_undone(self, log: Log) -> None:
        await log.append([turn_event("room:a", "one"), turn_event("room:a", "two")])
        await log.reset("room:a")
        assert turn_texts(await log.history("room:a")) == []
        await log.redo("room:a")
        assert turn_texts(await log.history("room:a")) == ["one", "two"]

    async def test_history_with_a_limit_gives_the_newest(self, log: Log) -> None:
        await log.append([turn_event("room:a", str(n)) for n in range(10)])
        await log.supersede("room:a", drop=[8])
        assert turn_texts(await log.history("room:a", limit=4)) == ["6", "8", "9"]  # and the event that superseded
        assert turn_texts(await log.history("room:a", after=2, before=6)) == ["2", "3", "4"]
        assert turn_texts(await log.history("room:a", before=6, limit=2)) == ["3", "4"]
        assert await log.history("room:none") == []
