"""`coterie desk`: a chat with a character that works in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import CoterieError
from coterie.base.redaction import redact
from coterie.base.untrusted import escape_controls
from coterie.cli.common import new_app, read_line, run_app

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.modes.desk import DeskChat

desk_app = new_app("desk")
_HELP = """\
  /status                 running branches and workers, and their tasks
  /steps ID               the steps of a worker so far
  /tell ID TEXT           send a follow-up to a worker that waits
  /yes ID    /no ID       allow or refuse what a worker asks for
  /cancel ID              end a worker or a branch, or remove a schedule
  /schedules              list the schedules
  /quit                   leave (Ctrl-D); unfinished work continues when Coterie runs again"""


@desk_app.command()
def desk(
    name: Annotated[str, typer.Argument(help="The character that should do the work, by name or id.")],
    fresh: Annotated[bool, typer.Option("--new", help="Begin a new conversation, even if there is one.")] = False,
) -> None:
    """Chat, line by line, with a character that works in the background. /help lists the commands."""
    from coterie.characters import OWNER

    with run_app() as (app, portal):
        character = app.characters.find(name)
        chats = app.desk.queries.chats()
        existing = [chat for chat in chats if (chat.character, chat.person) == (character.id, OWNER)]
        room = existing[0].room if existing and not fresh else portal.call(app.desk.open, character.id, OWNER, "")
        status = portal.call(app.desk.sandbox.status)
        if status.state != "confined":
            typer.secho(f"{status.reason}\n→ {status.fix}", fg="yellow", err=True)
        DeskLineChat(app, portal, app.desk.queries.chat(room)).run()


class DeskLineChat:
    """A desk chat, line by line. Results of background work are printed before the next line is read."""

    def __init__(self, app: App, portal: BlockingPortal, chat: DeskChat) -> None:
        from coterie.conversation import TurnQueries

        self._desk = app.desk
        self._portal = portal
        self._chat = chat
        self._name = app.characters.get(chat.character).name
        self._timeline = TurnQueries(app.store)
        self._shown = {turn.id for turn in self._timeline.latest(chat.room, 500)}

    def run(self) -> None:
        typer.secho(f"— {escape_controls(self._name)} at the desk — (/help, /quit)", dim=True)
        while True:
            self._show_new_turns()
            line = read_line("> ")
            if line is None:
                return
            if line.strip().startswith("/"):
                if not self._command(line.strip()):
                    return
            elif line.strip():
                typer.echo(escape_controls(self._portal.call(self._send, line.strip())), nl=False)

    async def _send(self, text: str) -> str:
        """Send a message and wait for the reply; if it answered a confirmation, return the outcome of that."""
        if outcome := await self._desk.confirmations.handle_answer(self._chat, text, self._chat.person):
            return f"{outcome}\n"
        turn = await self._desk.send_message(self._chat.room, text, person=self._chat.person)
        await self._desk.replies.wait(self._chat.room, turn)
        return ""

    def _show_new_turns(self) -> None:
        """Print every turn of the character that was not printed yet."""
        for turn in self._timeline.latest(self._chat.room, 500):
            if turn.id in self._shown or turn.by_person:
                continue
            self._shown.add(turn.id)
            if turn.text:
                typer.echo(f"{typer.style(escape_controls(self._name), bold=True)}: {escape_controls(turn.text)}")
            if turn.why:
                typer.secho(escape_controls(turn.why), fg="red")

    def _command(self, line: str) -> bool:
        """Run a slash command; False ends the chat."""
        try:
            match line[1:].split(maxsplit=2):
                case ["quit" | "q" | "exit", *_]:
                    return False
                case ["status", *_]:
                    self._status()
                case ["schedules", *_]:
                    self._schedules()
                case ["steps", process_id, *_]:
                    self._steps(process_id)
                case ["tell", process_id, text]:
                    self._portal.call(self._follow_up, process_id, text)
                case ["yes" | "no" as answer, process_id, *_]:
                    self._portal.call(self._answer, process_id, answer == "yes")
                case ["cancel", process_id, *_]:
                    self._portal.call(self._cancel, process_id)
                case _:
                    typer.echo(_HELP)
        except CoterieError as error:
            typer.secho(redact(str(error)), fg="red")
        return True

    def _status(self) -> None:
        processes = self._desk.queries.status_processes(self._chat.room)
        for process in processes:
            detail = process.result if process.state != "running" else process.status or process.task
            typer.echo(f"  {process.id}  {process.kind} {process.state}: {escape_controls(detail)}")
        if not processes:
            typer.echo("No work is in progress.")

    def _schedules(self) -> None:
        schedules = self._desk.schedules.queries.all(self._chat.room)
        for schedule in schedules:
            state = f"next {schedule.next:%Y-%m-%d %H:%M} UTC" if schedule.next else f"off {schedule.why}".strip()
            text = f"{schedule.when.describe()}: {escape_controls(schedule.prompt)} ({escape_controls(state)})"
            typer.echo(f"  {schedule.id}  {text}")
        if not schedules:
            typer.echo("There are no schedules.")

    def _steps(self, process_id: str) -> None:
        for step in self._desk.queries.worker_steps(self._desk.queries.process(self._chat.room, process_id)):
            typer.secho(f"  {escape_controls(f'{step.tool} {step.arguments}' if step.tool else step.role)}", dim=True)
            typer.echo(escape_controls(step.text))

    async def _follow_up(self, process_id: str, text: str) -> None:
        await self._desk.processes.send_follow_up(self._chat.room, process_id, text, actor=self._chat.person)

    async def _answer(self, process_id: str, allowed: bool) -> None:
        await self._desk.processes.confirm(self._chat.room, process_id, allowed=allowed, actor=self._chat.person)

    async def _cancel(self, process_id: str) -> None:
        if self._desk.schedules.queries.find(self._chat.room, process_id) is not None:
            await self._desk.schedules.remove(self._chat.room, process_id, actor=self._chat.person)
        else:
            await self._desk.processes.cancel(self._chat.room, process_id, actor=self._chat.person)
