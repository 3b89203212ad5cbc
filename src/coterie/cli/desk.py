"""`coterie desk`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app
from coterie.cli._house import running_app

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.modes.desk import DeskChat

app = new_app("Have a character get work done, here in the terminal.")
_HELP = """\
  /status                 who thinks and works, and at what
  /steps ID               what a worker did so far
  /tell ID TEXT           a follow-up for a worker that waits
  /yes ID    /no ID       whether a worker may do what it asks for
  /cancel ID              end a worker or a branch, or take a schedule off the timetable
  /schedules              what is on the timetable
  /quit                   leave (Ctrl-D); what goes on goes on when Coterie runs again"""


@app.command()
def desk(
    name: Annotated[str, typer.Argument(help="Who should do the work, by name or id.")],
    fresh: Annotated[bool, typer.Option("--new", help="Begin a new conversation, even if there is one.")] = False,
) -> None:
    """Talk with a character that works meanwhile, line by line. /help tells what else can be done."""
    with running_app() as (house, portal):
        bot = house.characters.find(name)
        mine = [chat for chat in house.desk.queries.chats() if chat.character == bot.id]
        room = mine[0].room if mine and not fresh else portal.call(house.desk.open, bot.id, _you(), "")
        standing = portal.call(house.desk.sandbox.status)
        if standing.state != "confined":
            typer.secho(f"{standing.reason}\n→ {standing.fix}", fg="yellow", err=True)
        DeskLineChat(house, portal, house.desk.queries.chat(room)).run()


class DeskLineChat:
    """A conversation at the desk, line by line. What comes of work is told before the next line is asked for."""

    def __init__(self, house: App, portal: BlockingPortal, chat: DeskChat) -> None:
        from coterie.conversation.turns import TurnQueries

        self._desk = house.desk
        self._portal = portal
        self._chat = chat
        self._name = house.characters.get(chat.character).name
        self._timeline = TurnQueries(house.store)
        self._told = {turn.id for turn in self._timeline.latest(chat.room, 500)}

    def run(self) -> None:
        typer.secho(f"— {_safe(self._name)} at the desk — (/help, /quit)", dim=True)
        while True:
            self._tell_news()
            try:
                line = input("> ").strip()
            except (EOFError, KeyboardInterrupt):
                typer.echo()
                return
            if line.startswith("/"):
                if not self._command(line):
                    return
            elif line:
                typer.echo(_safe(self._portal.call(self._say, line)), nl=False)

    async def _say(self, text: str) -> str:
        """Until it was looked at; what became of it where it was a yes or a no."""
        if decided := await self._desk.confirmations.handle_answer(self._chat, text, self._chat.person):
            return f"{decided}\n"
        turn = await self._desk.send_message(self._chat.room, text, person=self._chat.person)
        await self._desk.replies.wait(self._chat.room, turn)
        return ""

    def _tell_news(self) -> None:
        """Everything said since, asked for or not."""
        for turn in self._timeline.latest(self._chat.room, 500):
            if turn.id in self._told or turn.by_person:
                continue
            self._told.add(turn.id)
            if turn.text:
                typer.echo(f"{typer.style(_safe(self._name), bold=True)}: {_safe(turn.text)}")
            if turn.why:
                typer.secho(_safe(turn.why), fg="red")

    def _command(self, line: str) -> bool:
        """Do it; False ends the conversation."""
        from coterie.base.errors import CoterieError
        from coterie.base.redaction import redact

        try:
            match line[1:].split(maxsplit=2):
                case ["quit" | "q" | "exit", *_]:
                    return False
                case ["status", *_]:
                    self._status()
                case ["schedules", *_]:
                    self._schedules()
                case ["steps", which, *_]:
                    self._steps(which)
                case ["tell", which, text]:
                    self._portal.call(self._follow_up, which, text)
                case ["yes" | "no" as said, which, *_]:
                    self._portal.call(self._answer, which, said == "yes")
                case ["cancel", which, *_]:
                    self._portal.call(self._cancel, which)
                case _:
                    typer.echo(_HELP)
        except CoterieError as error:
            typer.secho(redact(str(error)), fg="red")
        return True

    def _status(self) -> None:
        found = self._desk.queries.status_processes(self._chat.room)
        for each in found:
            told = each.result if each.state != "running" else each.status or each.task
            typer.echo(f"  {each.id}  {each.kind} {each.state}: {_safe(told)}")
        if not found:
            typer.echo("Nothing is going on.")

    def _schedules(self) -> None:
        found = self._desk.schedules.queries.all(self._chat.room)
        for each in found:
            state = f"next {each.next:%Y-%m-%d %H:%M} UTC" if each.next else f"off {each.why}".strip()
            typer.echo(f"  {each.id}  {each.when.describe()}: {_safe(each.prompt)} ({_safe(state)})")
        if not found:
            typer.echo("Nothing is on the timetable.")

    def _steps(self, which: str) -> None:
        for step in self._desk.queries.worker_steps(self._desk.queries.process(self._chat.room, which)):
            typer.secho(f"  {_safe(f'{step.tool} {step.arguments}' if step.tool else step.role)}", dim=True)
            typer.echo(_safe(step.text))

    async def _follow_up(self, which: str, text: str) -> None:
        await self._desk.processes.send_follow_up(self._chat.room, which, text, actor=self._chat.person)

    async def _answer(self, which: str, allowed: bool) -> None:
        await self._desk.processes.confirm(self._chat.room, which, allowed=allowed, actor=self._chat.person)

    async def _cancel(self, which: str) -> None:
        if self._desk.schedules.queries.find(self._chat.room, which) is not None:
            await self._desk.schedules.remove(self._chat.room, which, actor=self._chat.person)
        else:
            await self._desk.processes.cancel(self._chat.room, which, actor=self._chat.person)


def _you() -> str:
    from coterie.characters.service import OWNER

    return OWNER


def _safe(text: str) -> str:
    from coterie.base.text import escape_controls

    return escape_controls(text)
