"""Accounts and people: linking, pairing, and permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.characters.errors import BadCode, NoSuchPerson
from coterie.characters.people import EVERY_CHARACTER, People, PeopleProjection
from coterie.characters.service import OWNER, CharactersProjection
from coterie.eventstore import Store
from coterie.eventstore.sqlite.replay import replayed_hash


@pytest.fixture
def desk(tmp_path: Path, clock: ManualClock) -> Iterator[People]:
    store = Store.open(tmp_path / "coterie.db", projections=[CharactersProjection(), PeopleProjection()], clock=clock)
    yield People(store, clock)
    with store.reader.connections.read_transaction() as rows:
        assert store.hashes() == {view.name: replayed_hash(view, rows) for view in store.projections}
    store.close()


async def test_p3_a_person_links_several_accounts(desk: People) -> None:
    for surface in ("matrix", "telegram"):
        code = await desk.issue_code(OWNER, 15)
        assert (await desk.link(code.lower().replace("-", " "), surface, "ana")).is_owner
    assert desk.identities(OWNER) == [("matrix", "ana", ""), ("telegram", "ana", "")]
    await desk.unlink("matrix", "ana")
    assert desk.by_account("matrix", "ana") is None
    with pytest.raises(NoSuchPerson, match="ana on matrix belongs to no person"):
        await desk.unlink("matrix", "ana")


async def test_p3_a_code_works_once_even_for_two_at_the_same_moment(desk: People) -> None:
    code = await desk.issue_code(OWNER, 15)
    tried = await asyncio.gather(*(desk.link(code, "matrix", f"account-{n}") for n in range(8)), return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in tried) == 1
    assert len(desk.identities(OWNER)) == 1
    with pytest.raises(BadCode, match="is not valid"):
        await desk.link(code, "matrix", "late")


async def test_p3_a_code_expires_and_is_never_kept_in_clear(desk: People, clock: ManualClock) -> None:
    code = await desk.issue_code(OWNER, 15)
    stored = desk._store.query("SELECT group_concat(payload) FROM event")[0][0]
    assert code not in stored and code.replace("-", "") not in stored
    clock.advance(15 * 60 + 1)
    with pytest.raises(BadCode):
        await desk.link(code, "matrix", "ana")


async def test_p3_the_owner_approves_a_strangers_code(desk: People, clock: ManualClock) -> None:
    asking = await desk.request_pairing("matrix", "@bo:here", "Bo", 15)
    assert asking is not None
    assert await desk.request_pairing("matrix", "@bo:here", "Bo", 15) is None, "one code at a time"
    with pytest.raises(BadCode):
        await desk.link(asking.code, "matrix", "@bo:here")  # it opens nothing by itself
    person, _ = await desk.approve(asking.code)
    assert desk.by_account("matrix", "@bo:here") == person and person.name == "Bo" and not person.is_owner
    with pytest.raises(BadCode, match="There is no request"):
        await desk.approve(asking.code)
    other = await desk.request_pairing("telegram", "77", "Bo", 15)
    assert other is not None
    assert (await desk.approve(other.code, "Bo"))[0] == person
    late = await desk.request_pairing("telegram", "78", "Cy", 15)
    assert late is not None
    clock.advance(15 * 60 + 1)
    with pytest.raises(BadCode):
        await desk.approve(late.code)


async def test_p3_the_owner_may_talk_to_all_characters_others_only_to_allowed_ones(desk: People) -> None:
    person, code = await desk.invite("Bo", 15)
    assert (await desk.link(code, "matrix", "bo")) == person
    assert desk.may_talk(OWNER, "mara") and not desk.may_talk(person.id, "mara")
    await desk.allow(person.id, "mara")
    assert desk.may_talk(person.id, "mara") and not desk.may_talk(person.id, "io")
    await desk.allow(person.id, "mara", allowed=False)
    await desk.allow(person.id, EVERY_CHARACTER)
    assert desk.may_talk(person.id, "io")
    assert [one.name for one in desk.all()] == ["You", "Bo"]
    with pytest.raises(NoSuchPerson):
        desk.find("Nobody")
