"""`coterie chat`: a story chat in the terminal, on the full screen or line by line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from coterie.base.errors import ConfigError, CoterieError
from coterie.base.redaction import redact
from coterie.base.untrusted import escape_controls
from coterie.cli.common import new_app, open_chat_app, read_line, run_app

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.characters import Character
    from coterie.conversation import Turn
    from coterie.modes.story import Chat, StartedTurn
    from coterie.surfaces.terminal import TerminalConversation

chat_app = new_app("chat")
_SHOWN_LINES = 6
_SHOWN_FULL_SCREEN = 50
T = TypeVar("T")
_HELP = """\
  /regenerate [MESSAGE]   another reply, to a changed message if you give one
  /rewind [N]             remove the last N exchanges (1)          /undo   restore them
  /fork                   continue in a copy; this chat stays as it is
  /close                  end the scene
  /stop                   (Ctrl-C while a reply comes) keep the text so far
  /quit                   leave (Ctrl-D)"""


@chat_app.command()
def chat(
    name: Annotated[str | None, typer.Argument(help="The character, by name or id.")] = None,
    fresh: Annotated[bool, typer.Option("--new", help="Begin a new chat, even if there is one.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Line by line, without the full screen.")] = False,
) -> None:
    """Chat with a character, on the full screen or line by line. /help lists the commands."""
    if not plain and sys.stdin.isatty() and sys.stdout.isatty():
        with open_chat_app() as app:
            asyncio.run(_run_full_screen(app, _choose_character(app, DirectPortal(), name), fresh))
        return
    with run_app() as (app, portal):
        LineChat(app, portal, _choose_character(app, portal, name), fresh).run()


async def _run_full_screen(app: App, character: Character, fresh: bool) -> None:
    from coterie.surfaces.terminal import TerminalChat

    async with app.running():
        await TerminalChat(await _open_conversation(app, character, fresh)).run_async()


async def _open_conversation(app: App, character: Character, fresh: bool) -> TerminalConversation:
    """The most recent chat with the character, or a new one."""
    from coterie.characters import OWNER
    from coterie.modes.story import StoryConversation
    from coterie.surfaces.terminal import PastMessage, TerminalConversation

    story = app.story
    chats = [] if fresh else story.chats.chats(host=character.id, person=OWNER)
    chat = chats[0] if chats else await story.begin(character.id, (await story.propose_opening(character.id)).opening)

    def history() -> list[PastMessage]:
        names = story.participants.names(chat)
        turns = story.timeline.latest(chat.room, _SHOWN_FULL_SCREEN)
        return [PastMessage(names.get(turn.speaker, turn.speaker), turn.text, turn.by_person) for turn in turns]

    conversation = StoryConversation(app.store, story, app.characters, app.feed)
    return TerminalConversation(conversation, chat.room, OWNER, character.name, history)


class DirectPortal:
    """Stands in for a BlockingPortal while no event loop runs: each call gets a loop of its own."""

    def call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        return asyncio.run(function(*arguments))


class LineChat:
    """A chat that reads a line and prints the reply as it is generated."""

    def __init__(self, app: App, portal: BlockingPortal, character: Character, fresh: bool) -> None:
        from coterie.characters import OWNER

        self._app = app
        self._story = app.story
        self._portal = portal
        chats = [] if fresh else self._story.chats.chats(host=character.id, person=OWNER)
        self._chat = chats[0] if chats else self._begin(character)

    @property
    def _room(self) -> str:
        return self._chat.room

    def run(self) -> None:
        typer.secho(f"— {escape_controls(self._chat.title)} — (/help, /quit)", dim=True)
        for turn in self._story.timeline.latest(self._room, _SHOWN_LINES):
            self._show(turn)
        while (line := read_line("> ")) is not None:
            if not line.strip():
                continue
            if line.startswith("/"):
                if not self._command(line):
                    return
            else:
                self._reply(partial(self._story.send_message, self._room, line))

    def _begin(self, character: Character) -> Chat:
        typer.secho(f"Preparing the opening scene with {escape_controls(character.name)}…", dim=True)
        proposal = self._portal.call(self._story.propose_opening, character.id)
        if proposal.notice:
            typer.secho("(The model could not parse the opening prose: it is used as written.)", dim=True)
        return self._portal.call(self._story.begin, character.id, proposal.opening)

    def _command(self, line: str) -> bool:
        """Run a slash command; False ends the chat."""
        command, _, rest = line[1:].partition(" ")
        try:
            match command.lower():
                case "quit" | "q" | "exit":
                    return False
                case "regenerate" | "r":
                    self._reply(lambda: self._story.regenerate(self._room, text=rest.strip() or None))
                case "rewind":
                    self._rewind(int(rest) if rest.strip().isdecimal() else 1)
                case "undo":
                    self._portal.call(self._story.undo_rewind, self._room)
                    self._show_last()
                case "fork":
                    self._fork()
                case "close":
                    typer.secho("Closing the scene…", dim=True)
                    self._portal.call(self._story.close_scene, self._room)
                case "stop":
                    typer.echo("There is no reply to stop.")
                case _:
                    typer.echo(_HELP)
        except CoterieError as error:
            _show_error(error)
        return True

    def _rewind(self, exchanges: int) -> None:
        turns = self._story.timeline.latest(self._room, 2 * exchanges + 1)
        own = [index for index, turn in enumerate(turns) if turn.by_person]
        if len(own) < exchanges or not own or own[-exchanges] == 0:
            typer.echo("There is nothing before that to go back to.")
            return
        self._portal.call(self._story.rewind, self._room, turns[own[-exchanges] - 1].id)
        typer.secho("Rewound. /undo restores it until you send a message.", dim=True)
        self._show_last()

    def _fork(self) -> None:
        latest = self._story.timeline.latest(self._room, 1)
        if latest:
            self._chat = self._portal.call(self._story.fork, self._room, latest[0].id)
            typer.secho(f"— {escape_controls(self._chat.title)} —", dim=True)

    def _reply(self, begin: Callable[[], Awaitable[StartedTurn]]) -> None:
        task = self._portal.start_task_soon(self._print_reply, begin)
        while True:
            try:
                turn = task.result()
                break
            except KeyboardInterrupt:
                self._portal.call(self._story.stop, self._room)
            except CoterieError as error:
                _show_error(error)
                return
        if turn.state == "truncated" and turn.why != "length":
            typer.secho(f"[{escape_controls(turn.why)}: /regenerate tries again]", dim=True)

    async def _print_reply(self, begin: Callable[[], Awaitable[StartedTurn]]) -> Turn:
        """Start a reply and print it as it is generated; return the finished turn."""
        async with self._app.feed.follow(self._room) as updates:
            started = await begin()
            names = self._story.participants.names(self._story.chats.chat(self._room))
            typer.echo(typer.style(f"{escape_controls(names[started.speaker])}: ", bold=True), nl=False)
            async for text in updates.reply_text(started.reply):
                typer.echo(escape_controls(text), nl=False)
            typer.echo()
        return self._story.timeline.turn(self._room, started.reply)

    def _show_last(self) -> None:
        for turn in self._story.timeline.latest(self._room, 1):
            self._show(turn)

    def _show(self, turn: Turn) -> None:
        if turn.by_person:
            typer.secho(f"> {escape_controls(turn.text)}", dim=True)
            return
        names = self._story.participants.names(self._chat)
        speaker = typer.style(escape_controls(names.get(turn.speaker, turn.speaker)), bold=True)
        typer.echo(f"{speaker}: {escape_controls(turn.text.strip())}")


def _choose_character(app: App, portal: BlockingPortal | DirectPortal, name: str | None) -> Character:
    """The named character, the only one, or one chosen from a list. Creates a ready-made one if it is chosen."""
    from coterie.characters import STARTER_NAMES, NoSuchCharacter, starter_character, starter_summary

    characters = app.characters.all()
    if name is not None:
        try:
            return app.characters.find(name)
        except NoSuchCharacter:
            starter = starter_character(name) if name.lower() in STARTER_NAMES else None
            if starter is None or any(character.name == starter.name for character in characters):
                raise
            return portal.call(app.character_importer.author, starter)
    if len(characters) == 1:
        return characters[0]
    choices = [character.name for character in characters] or [starter_summary(starter) for starter in STARTER_NAMES]
    typer.echo("Choose a character:" if characters else "There are no characters yet. Choose a ready-made one:")
    for number, choice in enumerate(choices, 1):
        typer.echo(f"  {number}  {escape_controls(choice)}")
    answer = read_line("number: ") or ""
    if not answer.strip().isdecimal() or not 1 <= int(answer) <= len(choices):
        raise ConfigError(
            "No character was chosen.", "Choose a number, or create a character: coterie characters new NAME"
        )
    if characters:
        return characters[int(answer) - 1]
    return portal.call(app.character_importer.author, starter_character(STARTER_NAMES[int(answer) - 1]))


def _show_error(error: Exception) -> None:
    typer.secho(redact(str(error)), fg="red")
