"""Time to recover two hundred rooms from a real homeserver after the loss of our database.

Created rooms and invitations are counted in the homeserver's log; a second start must write nothing.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.lib.report import arguments, finish, log, scratch_folder
from coterie.base.ids import new_id
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from tests.real.matrix_app import MatrixApp, app_on
from tests.real.synapse import Synapse


async def create_rooms(app: MatrixApp, account: str, rooms: int) -> None:
    owner = app.people.person("you")
    for number in range(rooms):
        room = await app.bot.rooms.room_for(account, f"Room {number}", "A room.", {"key": f"k{number}"})
        await app.router.chats.begin_chat(room_ref(room), owner, title=f"Room {number}")
        await app.bot.update_room(room_ref(room))


def counted(synapse: Synapse) -> tuple[int, int, int]:
    """Counts of requests to create rooms and to invite people, and of state events."""
    return (
        synapse.count_requests("/createRoom"),
        synapse.count_requests("/invite"),
        synapse.query("SELECT count(*) FROM state_events")[0][0],
    )


async def measure(synapse: Synapse, folder: Path, rooms: int) -> dict[str, object]:
    async with app_on(synapse, folder / "data", f"bot-{new_id().lower()}") as (app, ana):
        log(f"making {rooms} rooms")
        await create_rooms(app, ana.user, rooms)
        app.matrix = app.matrix.model_copy(update={"owner": ""})
        before = counted(synapse)
        await app.lose_database()
        started, busy = time.perf_counter(), time.process_time()
        await app.connect()
        seconds = time.perf_counter() - started
        log(f"{app.bot.report} in {seconds:.2f} s, {time.process_time() - busy:.2f} s of CPU time here")
        await app.bot.reconciler.write_metadata()
        log(f"metadata written after {time.perf_counter() - started:.2f} s")
        room_count = len(app.router.chats.rooms.on_surface(SURFACE))
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
