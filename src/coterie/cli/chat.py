"""`coterie chat`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from coterie.cli._app import new_app
from coterie.cli._house import opened_app, running_app

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.characters.service import Character
    from coterie.conversation.turns import Turn
    from coterie.modes.story import Chat, StartedTurn

app = new_app("Talk with a character, here in the terminal.")
_SHOWN = 6
T = TypeVar("T")
_HELP = """\
  /regenerate [MESSAGE]   another reply, to a changed message if you give one
  /rewind [N]             take the last N exchanges back (1)          /undo   bring them back
  /fork                   go on in a copy; this chat stays as it is
  /close                  close the scene
  /stop                   (Ctrl-C while a reply comes) keep what was said so far
  /quit                   leave (Ctrl-D)"""


@app.command()
def chat(
    name: Annotated[str | None, typer.Argument(help="Whom to talk with, by name or id.")] = None,
    fresh: Annotated[bool, typer.Option("--new", help="Begin a new chat, even if there is one.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Line by line, without the full screen.")] = False,
) -> None:
    """Talk with a character, on the full screen or line by line. /help tells what else can be done."""
    if not plain and sys.stdin.isatty() and sys.stdout.isatty():
        from coterie.cli._full_screen_chat import run_full_screen

        with opened_app() as house:
            run_full_screen(house, _choose(house, DirectPortal(), name), fresh)
        return
    with running_app() as (house, portal):
        bot = _choose(house, portal, name)
        LineChat(house, portal, bot, fresh).run()


class DirectPortal:
    """Runs one thing at a time, while nothing else does."""

    def call(self, do: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        import asyncio

        return asyncio.run(do(*arguments))


class LineChat:
    def __init__(self, house: App, portal: BlockingPortal, bot: Character, fresh: bool) -> None:
        from coterie.characters.service import OWNER

        self._house = house
        self._story = house.story
        self._portal = portal
        chats = [] if fresh else self._story.chats.chats(host=bot.id, person=OWNER)
        self._chat = chats[0] if chats else self._begin(bot)

    @property
    def _room(self) -> str:
        return self._chat.room

    def run(self) -> None:
        typer.secho(f"— {_safe(self._chat.title)} — (/help, /quit)", dim=True)
        for turn in self._story.timeline.latest(self._room, _SHOWN):
            self._show(turn)
        while (line := _ask("> ")) is not None:
            if not line.strip():
                continue
            if line.startswith("/"):
                if not self._command(line):
                    return
            else:
                self._reply(partial(self._story.say, self._room, line))

    def _begin(self, bot: Character) -> Chat:
        typer.secho(f"Setting the scene with {_safe(bot.name)}…", dim=True)
        proposal = self._portal.call(self._story.propose_opening, bot.id)
        if proposal.notice:
            typer.secho("(The model could not read the scene from the prose: it begins as it is written.)", dim=True)
        return self._portal.call(self._story.begin, bot.id, proposal.opening)

    def _command(self, line: str) -> bool:
        """Do it; False ends the conversation."""
        command, _, rest = line[1:].partition(" ")
        from coterie.base.errors import CoterieError

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
                    typer.echo("Nobody is speaking.")
                case _:
                    typer.echo(_HELP)
        except CoterieError as error:
            _tell(error)
        return True

    def _rewind(self, exchanges: int) -> None:
        turns = self._story.timeline.latest(self._room, 2 * exchanges + 1)
        mine = [at for at, turn in enumerate(turns) if turn.by_person]
        if len(mine) < exchanges or not mine or mine[-exchanges] == 0:
            typer.echo("There is nothing before that to go back to.")
            return
        self._portal.call(self._story.rewind, self._room, turns[mine[-exchanges] - 1].id)
        typer.secho("Taken back (/undo brings it back until you say something).", dim=True)
        self._show_last()

    def _fork(self) -> None:
        latest = self._story.timeline.latest(self._room, 1)
        if latest:
            self._chat = self._portal.call(self._story.fork, self._room, latest[0].id)
            typer.secho(f"— {_safe(self._chat.title)} —", dim=True)

    def _reply(self, begin: Callable[[], Awaitable[StartedTurn]]) -> None:
        from coterie.base.errors import CoterieError

        speaking = self._portal.start_task_soon(self._hear, begin)
        while True:
            try:
                ended = speaking.result()
                break
            except KeyboardInterrupt:
                self._portal.call(self._story.stop, self._room)
            except CoterieError as error:
                _tell(error)
                return
        if ended.state == "truncated" and ended.why != "length":
            typer.secho(f"[{_safe(ended.why)}: /regenerate tries again]", dim=True)

    async def _hear(self, begin: Callable[[], Awaitable[StartedTurn]]) -> Turn:
        """Tell a reply word by word, until it has ended."""
        from coterie.conversation.events import AssistantTurn
        from coterie.conversation.replies import LiveText

        async with self._house.feed.follow(self._room) as following:
            begun = await begin()
            names = self._story.participants.names(self._story.chats.chat(self._room))
            typer.echo(typer.style(f"{_safe(names[begun.speaker])}: ", bold=True), nl=False)
            told = 0
            async for news in following:
                if isinstance(news, LiveText):
                    typer.echo(_safe(news.text), nl=False)
                    told = news.offset + len(news.text)
                elif isinstance(news.payload, AssistantTurn) and news.payload.reply == begun.reply:
                    typer.echo(_safe(news.payload.text[told:]))
                    break
        return self._story.timeline.turn(self._room, begun.reply)

    def _show_last(self) -> None:
        for turn in self._story.timeline.latest(self._room, 1):
            self._show(turn)

    def _show(self, turn: Turn) -> None:
        if turn.by_person:
            typer.secho(f"> {_safe(turn.text)}", dim=True)
            return
        names = self._story.participants.names(self._chat)
        typer.echo(
            f"{typer.style(_safe(names.get(turn.speaker, turn.speaker)), bold=True)}: {_safe(turn.text.strip())}"
        )


def _choose(house: App, portal: BlockingPortal | DirectPortal, name: str | None) -> Character:
    from coterie.base.errors import ConfigError
    from coterie.characters import starter_characters as shelf
    from coterie.characters.errors import NoSuchCharacter

    bots = house.characters.all()
    if name is not None:
        try:
            return house.characters.find(name)
        except NoSuchCharacter:
            if name.lower() not in shelf.NAMES or any(bot.name == shelf.starter_character(name).name for bot in bots):
                raise
            return portal.call(house.character_importer.author, shelf.starter_character(name))
    if len(bots) == 1:
        return bots[0]
    offered = [bot.name for bot in bots] or [shelf.summary(one) for one in shelf.NAMES]
    typer.echo("Whom would you like to talk with?" if bots else "Nobody is here yet. Whom would you like to meet?")
    for number, what in enumerate(offered, 1):
        typer.echo(f"  {number}  {_safe(what)}")
    answer = _ask("number: ") or ""
    if not answer.strip().isdecimal() or not 1 <= int(answer) <= len(offered):
        raise ConfigError("Nobody was chosen.", "Choose a number, or make somebody: coterie cast new NAME")
    if bots:
        return bots[int(answer) - 1]
    return portal.call(house.character_importer.author, shelf.starter_character(shelf.NAMES[int(answer) - 1]))


def _ask(prompt: str) -> str | None:
    """A line, or None at the end."""
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        typer.echo()
        return None


def _tell(error: Exception) -> None:
    from coterie.base.redaction import redact

    typer.secho(redact(str(error)), fg="red")


def _safe(text: str) -> str:
    from coterie.base.text import escape_controls

    return escape_controls(text)
