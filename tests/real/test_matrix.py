"""Matrix on a real homeserver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coterie.base.ids import new_id
from coterie.base.supervisor import STABLE_S
from coterie.characters.workspace import Portrait
from coterie.messaging.protocol import OutgoingMessage
from coterie.messaging.rooms import RoomArchived, RoomShared
from coterie.surfaces.matrix.homeserver import MatrixRefused
from coterie.surfaces.matrix.login import reset
from coterie.surfaces.matrix.rooms import CHAT
from coterie.surfaces.matrix.schemas import SURFACE, room_ref
from tests.faulty_supervisor import FaultySupervisor, until
from tests.real.matrix_app import MatrixApp, MatrixUser, app_on, app_with
from tests.real.second_client import EncryptedMatrixUser
from tests.real.synapse import Synapse

pytestmark = pytest.mark.timeout(600)


def bot_name() -> str:
    return f"bot-{new_id().lower()}"


def creations(synapse: Synapse, user: str) -> int:
    return int(synapse.query("SELECT count(*) FROM rooms WHERE creator = ?", user)[0][0])


def written(synapse: Synapse, user: str) -> list[tuple[str, str, str]]:
    """The state events that a user wrote; the server has other users too."""
    sql = "SELECT room_id, type, state_key FROM events WHERE sender = ? AND state_key IS NOT NULL"
    return synapse.query(f"{sql} ORDER BY stream_ordering", user)


async def first_room(app: MatrixApp, ana: MatrixUser) -> str:
    await ana.room_with(app.bot_user)
    await app.settle()
    await ana.accept_invites()
    await app.settle(1)
    (binding,) = app.router.chats.rooms.on_surface(SURFACE)
    return binding.room.id


async def test_p7_an_invitation_creates_a_space_and_a_first_room_once(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        await asyncio.gather(*(ana.room_with(app.bot_user) for _ in range(3)))
        await app.settle()
        await app.restart()
        await ana.room_with(app.bot_user)
        await app.settle()
        assert creations(synapse, app.bot_user) == 2, "a Space and a room, whatever happens"
        invited = await ana.accept_invites()
        assert len(invited) == 2
        space = next(one.room for one in app.bot.rooms.rooms.values() if one.is_space)
        state = await ana.server.state(space)
        children = [event["state_key"] for event in state if event["type"] == "m.space.child"]
        assert children == [room for room in invited if room != space]
        room_state = {event["type"]: event["content"] for event in await ana.server.state(children[0])}
        assert room_state["m.room.name"] == {"name": "First chat"} and room_state["m.room.topic"]["topic"]
        await ana.say(children[0], "Hello?")
        await app.settle()
        assert (await ana.shown(children[0], app.bot_user))[-1].startswith("Hello? [echo:")


async def test_p8_p9_commands_and_rooms(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        room = await first_room(app, ana)
        for text in ("!start", "!help", "!nonsense", "hello", "!context", "!agent", "!settings", "!save a name"):
            await ana.say(room, text)
        for text in ("!rename Kitchen", "!chats", "!retry", "!stop", "!yes", "!clear"):
            await ana.say(room, text)
        await app.settle()
        await app.restart()
        for text in ("!yes", "after", "!load", "1", "back"):
            await ana.say(room, text)
        await app.settle()
        texts = await ana.shown(room, app.bot_user)
        joined = "\n".join(texts)
        for expected in (
            *("!archive", "I do not know !nonsense", "Echo (here)", "surfaces.strangers", "Saved as “a name”"),
            *("is called “Kitchen” now", "1. Kitchen, with Echo (here)", "again [", "No reply is running."),
            *("no open question", "Start over in this room?", "!yes or !no", "A new chat begins here.", "Which one?"),
            "This chat continues here: a name",
        ):
            assert expected in joined, expected
        spoken = [text.partition("[")[2] for text in texts if text.endswith("]") and not text.startswith("again")]
        assert spoken[0] == spoken[2] != spoken[1], "P9"
        name = {event["type"]: event["content"] for event in await ana.server.state(room)}["m.room.name"]
        assert name == {"name": "Kitchen"}

        await ana.say(room, "!new Garden")
        await app.settle()
        (garden,) = await ana.accept_invites()
        await ana.say(garden, "roses")
        await app.settle()
        assert (await ana.shown(garden, app.bot_user))[-1].startswith("roses [")
        await ana.say(garden, "!archive")
        await ana.say(garden, "!yes")
        await app.settle()
        assert [one.room.id for one in app.router.chats.rooms.of_person("you", SURFACE)] == [room]


@pytest.mark.parametrize("client", [MatrixUser, EncryptedMatrixUser], ids=["plain", "sealed"])
async def test_p7_threads_replies_and_edits_are_kept(
    synapse: Synapse, tmp_path: Path, client: type[MatrixUser]
) -> None:
    async with app_with(client, synapse, tmp_path, bot_name()) as (app, ana):
        room = await first_room(app, ana)
        root = await ana.say(room, "a thread begins")
        await app.settle(1)
        thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": root}}
        await ana.say(room, "in it", more=thread)
        quoted = {"m.relates_to": {"m.in_reply_to": {"event_id": root}}}
        await ana.say(room, "> <@ana> a thread begins\n\nan answer", more=quoted)
        replaced = {"m.relates_to": {"rel_type": "m.replace", "event_id": root}}
        await ana.say(room, "* x", more={"m.new_content": {"body": "x", "msgtype": "m.text"}, **replaced})
        await ana.say(room, "beep", more={"msgtype": "m.notice"})
        await app.settle()
        assert [text for _, text in app.echo.received] == ["a thread begins", "in it", "an answer"]
        ours = [event for event in await ana.events(room) if event["sender"] == app.bot_user]
        threaded = [event for event in ours if event["content"].get("m.relates_to", {}).get("rel_type") == "m.thread"]
        assert [event["content"]["m.relates_to"]["event_id"] for event in threaded] == [root]
        assert threaded[0]["content"]["body"].startswith("in it")


@pytest.mark.parametrize("client", [MatrixUser, EncryptedMatrixUser], ids=["plain", "sealed"])
async def test_p7_messages_from_before_the_invitation_are_not_answered(
    synapse: Synapse, tmp_path: Path, client: type[MatrixUser]
) -> None:
    async with app_with(client, synapse, tmp_path, bot_name()) as (app, ana):
        room = await ana.room_with(f"@nobody-{new_id().lower()}:localhost")
        await ana.say(room, "said among us")
        await ana.server.invite(room, app.bot_user)
        await app.settle()
        await ana.accept_invites()
        if isinstance(ana, EncryptedMatrixUser):
            await ana.sync()
            await ana.forget_session(room)
        await ana.say(room, "said to you")
        await app.settle()
        assert [text for _, text in app.echo.received] == ["said to you"]
        assert not app.bot.crypto.has_pending


async def test_p7_a_room_shows_the_characters_portrait(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        room = await first_room(app, ana)
        character = app.router.chats.rooms.get(room_ref(room)).character
        for picture in (b"\x89PNG\r\n\x1a\none", b"\x89PNG\r\n\x1a\nanother"):
            app.portraits[character] = Portrait(picture, "image/png", 1)
            await app.bot.update_room(room_ref(room))
            avatar = (await ana.server.state_event(room, "m.room.avatar"))["url"]
            async with ana.server.download(avatar) as parts:
                assert b"".join([part async for part in parts]) == picture
        writes = written(synapse, app.bot_user)
        await app.restart()
        await app.bot.update_room(room_ref(room))
        assert written(synapse, app.bot_user) == writes, "one picture, set once"


async def test_p7_the_updates_of_rooms_come_back_after_a_failure(synapse: Synapse, tmp_path: Path) -> None:
    supervisor, task = FaultySupervisor(), "Matrix room updates"
    async with app_on(synapse, tmp_path, bot_name(), supervisor=supervisor) as (app, ana):
        room = await first_room(app, ana)
        picture = b"\x89PNG\r\n\x1a\nmissed"
        app.portraits[app.router.chats.rooms.get(room_ref(room)).character] = Portrait(picture, "image/png", 1)
        supervisor.kill(task)
        await until(supervisor.problems)
        (problem,) = supervisor.problems()
        assert (problem.name, problem.status, problem.failures) == (task, "retrying", 1)
        async with asyncio.timeout(60):
            while not (avatar := await avatar_of(ana, room)):
                await asyncio.sleep(0.1)
        async with ana.server.download(avatar) as parts:
            assert b"".join([part async for part in parts]) == picture
        supervisor.clock.advance(STABLE_S)
        assert (supervisor.runs[task], supervisor.problems()) == (2, [])


async def avatar_of(ana: MatrixUser, room: str) -> str:
    """The address of the room's picture; nothing if it has none."""
    try:
        return str((await ana.server.state_event(room, "m.room.avatar"))["url"])
    except MatrixRefused:
        return ""


async def test_p6_files_both_ways(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        room = await first_room(app, ana)
        data = os.urandom(300_000)

        async def chunks() -> AsyncIterator[bytes]:
            yield data

        uri = await ana.server.upload(chunks(), len(data), "image/png", "x.png")
        picture = {"msgtype": "m.image", "url": uri, "info": {"mimetype": "image/png"}}
        await ana.say(room, "../../../etc/cron.d/x.png", more=picture)
        await ana.say(room, "gone.txt", more={"msgtype": "m.file", "url": "mxc://localhost/nothing-there"})
        await app.settle()
        (kept,) = app.echo.files
        character = app.router.chats.rooms.get(room_ref(room)).character
        saved = app.workspaces / character / kept.path
        assert saved.read_bytes() == data and kept.path.startswith("files/matrix-")
        assert "could not be saved" in app.echo.received[-1][1]
        await app.router.notify(OutgoingMessage(room=room_ref(room), text="Here.", attachments=(kept,)), "file-1")
        await app.router.wait_idle()
        sent = [e["content"] for e in await ana.events(room) if e["content"].get("msgtype") == "m.image"][-1]
        async with ana.server.download(sent["url"]) as parts:
            assert b"".join([part async for part in parts]) == data


async def test_p10_a_lost_database_is_restored_without_creating_or_inviting(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        await app.bot.update_room(room_ref(await first_room(app, ana)))
        for n in range(5):
            room = await app.bot.rooms.room_for(ana.user, f"Room {n}", "t", {"key": f"k{n}"})
            await app.router.chats.begin_chat(room_ref(room), app.people.person("you"), title=f"Room {n}")
            await app.bot.update_room(room_ref(room))
        rooms, (echo,) = app.router.chats.rooms, app.roster.all()
        bea = await app.people.add("Bea")
        await app.people.allow(bea.id, echo.id)
        archived, shared = (one.room for one in rooms.on_surface(SURFACE)[1:3])
        await rooms.record(RoomArchived(room=archived), "you")
        await rooms.record(RoomShared(room=shared, person=bea.id), "you")
        await app.bot.update_room(archived)
        await app.bot.update_room(shared)
        await app.bot.write_records()
        before = {one.room.id: (one.number, one.title) for one in rooms.on_surface(SURFACE)}
        created, members = creations(synapse, app.bot_user), synapse.query("SELECT count(*) FROM room_memberships")
        requests = synapse.count_requests("/createRoom", "/invite")
        app.matrix = app.matrix.model_copy(update={"owner": ""})
        await app.lose_database()
        await app.connect()
        await app.bot.reconciler.write_metadata()
        assert app.bot.report.conflicts == app.bot.report.skipped == []
        assert [line for line in app.bot.report.restored if not line.startswith("!")] == [
            "the character Echo",
            "Bea, with their permissions",
        ]
        assert app.roster.all() == [echo] and app.people.allowed_characters(bea.id) == [echo.id]
        rooms = app.router.chats.rooms
        assert rooms.get(archived).archived and rooms.guests(shared) == [bea.id]
        after = {one.room.id: (one.number, one.title) for one in app.router.chats.rooms.on_surface(SURFACE)}
        assert {room: number for room, (number, _) in after.items()} == {r: number for r, (number, _) in before.items()}
        assert app.people.by_account(SURFACE, ana.user) == app.people.person("you")
        assert app.router.chats.rooms.next_number("you", SURFACE) == 7
        assert creations(synapse, app.bot_user) == created and requests > 0
        assert synapse.count_requests("/createRoom", "/invite") == requests, "not even tried"
        assert synapse.query("SELECT count(*) FROM room_memberships") == members
        events, states = app.store.reader.last_id(), written(synapse, app.bot_user)
        assert states
        await app.restart()
        assert app.store.reader.last_id() == events, "what is right is left alone"
        assert written(synapse, app.bot_user) == states
        await ana.accept_invites()
        await app.following.sync_once(0)
        await ana.say(archived.id, "is anybody here?")
        room = shared.id
        await ana.say(room, "are you there?")
        await app.settle()
        assert await ana.shown(archived.id, app.bot_user) == [], "an archived room is silent"
        assert any(text.startswith("are you there? [") for text in await ana.shown(room, app.bot_user))


async def test_p3_a_stranger_gets_a_code_and_nothing_else(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        await first_room(app, ana)
        mallory = await MatrixUser.arrive(synapse, f"mallory-{new_id().lower()}")
        room = await mallory.room_with(app.bot_user)
        await app.settle()
        for text in ("Who is there?", "!chats", "!help"):
            await mallory.say(room, text)
        await app.settle()
        (texts,) = await mallory.shown(room, app.bot_user)
        assert "I do not know you yet" in texts
        assert await mallory.accept_invites() == []
        code = texts.rpartition(" ")[2]
        await app.people.approve(code)
        await mallory.say(room, "and now?")
        await app.settle()
        assert "no character" in (await mallory.shown(room, app.bot_user))[-1].lower(), "approved, without a character"
        await mallory.server.close()


async def test_p11_reset_reports_its_steps_and_dry_run_changes_nothing(synapse: Synapse, tmp_path: Path) -> None:
    async with app_on(synapse, tmp_path, bot_name()) as (app, ana):
        room = await first_room(app, ana)
        login, reports = app.folder / "login.json", list[str]()
        server = app.bot.rooms.server
        events, joined = app.store.reader.last_id(), await server.joined_rooms()
        for mode in ("local-only", "server-leave-forget"):
            await reset(app.store, server, login, mode, dry_run=True, report=reports.append)
        assert app.store.reader.last_id() == events and login.exists()
        assert await server.joined_rooms() == joined
        assert any("would be left and forgotten" in line for line in reports) and "by hand" in reports[-1]
        await reset(app.store, server, login, "local-only", dry_run=False, report=reports.append)
        assert app.router.chats.rooms.on_surface(SURFACE) == [] and await server.joined_rooms() == joined
        await reset(app.store, server, login, "server-leave-forget", dry_run=False, report=reports.append)
        joined_count = "SELECT count(*) FROM local_current_membership WHERE user_id = ? AND membership = 'join'"
        assert synapse.query(joined_count, app.bot_user) == [(0,)] and not login.exists()
        keys = await ana.server.query_keys([app.bot_user])
        assert keys["device_keys"][app.bot_user] == {}, "the removed device has no keys"
        assert CHAT in {event["type"] for event in await ana.server.state(room)}
