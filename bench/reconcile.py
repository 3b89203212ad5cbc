"""Time to recover two hundred rooms from a real homeserver after the loss of our database.

Characters, people, permissions and archived rooms are lost with it, and compared with what they were. Created rooms and
invitations are counted in the homeserver's log; a second start must write nothing.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.lib.report import arguments, finish, log, scratch_folder
from coterie.base.ids import new_id
from coterie.characters import Identity
from coterie.messaging import RoomArchived, RoomForgotten
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from tests.real.matrix_app import MatrixApp, app_on
from tests.real.synapse import Synapse

CHARACTERS, PEOPLE, ARCHIVED_EVERY = 5, 10, 7


async def create_records(app: MatrixApp) -> None:
    for number in range(CHARACTERS):
        character = await app.roster.save(Identity(name=f"Character {number}", persona=f"Knows the number {number}."))
        for person in range(number, PEOPLE, CHARACTERS):
            added = await app.people.add(f"Person {person}")
            await app.people.allow(added.id, character.id)


def recorded(app: MatrixApp) -> dict[str, object]:
    """What must be the same after the loss."""
    rooms, people = app.router.chats.rooms, app.people
    return {
        "characters": {one.id: one.identity for one in app.roster.all()},
        "permissions": {one.id: (one.name, people.allowed_characters(one.id)) for one in people.all()},
        "rooms": {
            one.room.id: (one.person, one.character, one.title, one.number, one.archived)
            for one in rooms.on_surface(SURFACE)
        },
        "next number": rooms.next_number("you", SURFACE),
    }


async def create_rooms(app: MatrixApp, account: str, rooms: int) -> None:
    owner = app.people.person("you")
    for number in range(rooms):
        room = await app.bot.rooms.room_for(account, f"Room {number}", "A room.", {"key": f"k{number}"})
        await app.router.chats.begin_chat(room_ref(room), owner, title=f"Room {number}")
        if number % ARCHIVED_EVERY == 0:
            await app.router.chats.rooms.record(RoomArchived(room=room_ref(room)), owner.id)
        await app.bot.update_room(room_ref(room))
    forgotten = room_ref(await app.bot.rooms.room_for(account, "Left", "A room.", {"key": "left"}))
    await app.router.chats.begin_chat(forgotten, owner, title="Left")
    await app.bot.rooms.leave(forgotten.id)
    await app.router.chats.rooms.record(RoomForgotten(room=forgotten), owner.id)


def counted(synapse: Synapse) -> tuple[int, int, int]:
    """Counts of requests to create rooms and to invite people, and of changes of state and of account data."""
    return (
        synapse.count_requests("/createRoom"),
        synapse.count_requests("/invite"),
        synapse.query("SELECT count(*) FROM state_events")[0][0]
        + synapse.count_requests("PUT /_matrix/client/v3/user/"),
    )


async def measure(synapse: Synapse, folder: Path, rooms: int) -> dict[str, object]:
    async with app_on(synapse, folder / "data", f"bot-{new_id().lower()}") as (app, ana):
        log(f"making {rooms} rooms")
        await create_records(app)
        await create_rooms(app, ana.user, rooms)
        await app.bot.write_records()
        original = recorded(app)
        app.matrix = app.matrix.model_copy(update={"owner": ""})
        before = counted(synapse)
        await app.lose_database()
        started, busy = time.perf_counter(), time.process_time()
        await app.connect()
        seconds = time.perf_counter() - started
        log(f"{app.bot.report} in {seconds:.2f} s, {time.process_time() - busy:.2f} s of CPU time here")
        await app.bot.reconciler.write_metadata()
        log(f"metadata written after {time.perf_counter() - started:.2f} s")
        room_count, restored = len(app.router.chats.rooms.on_surface(SURFACE)), recorded(app)
        different = [name for name in original if original[name] != restored[name]]
        if different:
            log(f"not as before: {', '.join(different)}")
        middle, events = counted(synapse), app.store.reader.last_id()
        await app.restart()
        after = counted(synapse)
        written = [event.kind for event in app.store.reader.read(after=events)]
        writes = len(written) + after[2] - middle[2]
        log(f"the second start wrote {written or 'nothing'} here and {after[2] - middle[2]} there")
        return {
            "rooms": room_count,
            "seconds": round(seconds, 2),
            "created": after[0] - before[0],
            "invited": after[1] - before[1],
            "second_run_writes": writes,
            "not_restored": different,
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rooms", type=int)
    options = parser.parse_args()
    rooms = options.rooms or (20 if options.quick else 200)
    with scratch_folder() as folder:
        synapse = Synapse(Path(folder).absolute() / "synapse")
        synapse.start()
        try:
            finish(asyncio.run(measure(synapse, Path(folder).absolute(), rooms)))
        finally:
            synapse.stop()


if __name__ == "__main__":
    main()
