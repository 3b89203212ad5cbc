"""`coterie draft`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli._app import new_app
from coterie.cli._house import running_app

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.characters.service import Character
    from coterie.modes.draft import Member, Proposal, StartedTurn
    from coterie.modes.draft.local_files import FileDocument

app = new_app("Work on a text with a character: ask, then review its proposals.")
_FILE = typer.Argument(help="A Markdown or text file, in a Git repository or not.")
_PLAIN = typer.Option("--plain", help="Leave the file's Git repository out of it: write only the file.")
_KEYS = "[a]ccept  [d]ecline  [e]dit  [s]kip  [u]ndo the last  [q]uit: "


@app.command()
def ask(
    file: Annotated[Path, _FILE],
    question: Annotated[str, typer.Argument(help="What you would like to know or to have changed.")],
    by: Annotated[str | None, typer.Option("--as", help="Which character answers, by name.")] = None,
    brief: Annotated[str, typer.Option(help="What the character is there for.")] = "",
    search_replace: Annotated[
        bool, typer.Option("--search-replace", help="Ask for changes between conflict marks instead of tags.")
    ] = False,
    plain: Annotated[bool, _PLAIN] = False,
) -> None:
    """Ask a character about a file. It answers in prose and in proposals, which `review` shows."""
    with _at_work(file, plain) as work:
        from coterie.modes.draft import Member

        bot = work.character(by)
        member = Member(bot=bot.id, brief=brief, format="search_replace" if search_replace else "auto")
        waiting = work.ask(question, member, bot)
        if waiting:
            plural = "s wait" if waiting > 1 else " waits"
            typer.secho(f"{waiting} proposal{plural}: coterie draft review {file}", dim=True)


@app.command()
def review(
    file: Annotated[Path, _FILE],
    accept_all: Annotated[bool, typer.Option("--accept-all", help="Accept every proposal that is fresh.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only show them.")] = False,
    plain: Annotated[bool, _PLAIN] = False,
) -> None:
    """Go through the proposals for a file. What you accept is written to it, and committed if it is in Git."""
    with _at_work(file, plain) as work:
        waiting = work.pending()
        if not waiting:
            typer.echo(f'Nothing is proposed for {file}. Ask with: coterie draft ask {file} "…"')
        last: Proposal | None = None
        for number, change in enumerate(waiting, start=1):
            current = work.refreshed(change)
            work.card(current, f"{number}/{len(waiting)}")
            if show or not current.fresh:
                continue
            if accept_all:
                work.accept(current)
            elif not (decided := work.decide(current, last))[0]:
                return
            else:
                last = decided[1]


@dataclass
class _Work:
    house: App
    portal: BlockingPortal
    bound: FileDocument

    def pending(self) -> list[Proposal]:
        where = (self.bound.workspace, self.bound.branch, self.bound.document)
        return self.house.draft.proposal_queries.of_document(*where, "pending")

    def refreshed(self, change: Proposal) -> Proposal:
        from coterie.modes.draft.local_files import sync_from_file

        self.portal.call(sync_from_file, self.house.draft, self.bound)
        return self.house.draft.proposal_queries.proposal(change.id)

    def character(self, name: str | None) -> Character:
        if name is not None:
            return self.house.characters.find(name)
        if bots := self.house.characters.all():
            return bots[0]
        from coterie.characters.identity import Identity

        editor = Identity(name="Editor", persona="A careful editor, who keeps the author's voice.")
        return self.portal.call(self.house.character_importer.author, editor)

    def ask(self, question: str, member: Member, bot: Character) -> int:
        """Tell the answer as it comes; how many proposals there are then."""
        draft, bound = self.house.draft, self.bound
        thread = self.portal.call(
            partial(
                draft.threads.open_thread, bound.workspace, bound.document, [member], bound.person, branch=bound.branch
            )
        )
        typer.secho(f"{_safe(bot.name)}: ", bold=True, nl=False)
        speaking = self.portal.start_task_soon(self._hear, thread.room, question, member)
        while True:
            try:
                asked = speaking.result()
                break
            except KeyboardInterrupt:
                self.portal.call(draft.threads.stop_reply, thread.room)
        self.portal.call(self._settled, asked.reply)
        turn = draft.timeline.turn(thread.room, asked.reply)
        if turn.state == "truncated":
            typer.secho(f"[{_safe(turn.why)}]", dim=True)
        for note in draft.thread_queries.notes(thread.room):
            typer.secho(f"[{_safe(note.text)}]", dim=True)
        found = draft.proposal_queries.of_reply(thread.room, asked.reply)
        for number, change in enumerate(found, start=1):
            self.card(change, f"{number}/{len(found)}")
        return len(found)

    async def _hear(self, room: str, question: str, member: Member) -> StartedTurn:
        from coterie.conversation.events import AssistantTurn
        from coterie.conversation.replies import LiveText
        from coterie.modes.draft import ReplyText, parser_for

        draft, told = self.house.draft, 0
        parser = parser_for(draft.thread_queries.thread(room).member(member.bot).format)
        async with draft.feed.follow(room) as following:
            asked = await draft.threads.send_message(room, question, self.bound.person)
            async for news in following:
                over = not isinstance(news, LiveText) and isinstance(news.payload, AssistantTurn)
                if isinstance(news, LiveText):
                    pieces, told = parser.feed(news.text), news.offset + len(news.text)
                elif isinstance(news.payload, AssistantTurn):
                    pieces = [*parser.feed(news.payload.text[told:]), *parser.end()]
                else:
                    continue
                typer.echo(_safe("".join(piece.text for piece in pieces if isinstance(piece, ReplyText))), nl=over)
                if over:
                    break
        return asked

    async def _settled(self, reply: str) -> None:
        """Until what a reply left to be done is done: a quote that was not found is asked for once more."""
        import asyncio

        jobs = self.house.store.jobs
        for _ in range(1_200):
            waiting = [*await jobs.find(state="ready"), *await jobs.find(state="leased")]
            if not any(job.payload.get("reply") == reply for job in waiting):
                return
            await asyncio.sleep(0.05)

    def decide(self, change: Proposal, last: Proposal | None) -> tuple[bool, Proposal | None]:
        """What the person chose; False ends the review."""
        from coterie.base.errors import CoterieError
        from coterie.cli._editor import edit_text

        while True:
            answer = (_line(_KEYS) or "q").strip().lower()[:1]
            try:
                match answer:
                    case "a":
                        return True, self.accept(change)
                    case "d":
                        comment = _line("why (may stay empty): ") or ""
                        self.portal.call(self.house.draft.proposals.decline, change.id, self.bound.person, comment)
                        return True, last
                    case "e":
                        text = edit_text(change.proposed)
                        if text is not None:
                            return True, self.accept(change, text)
                    case "u" if last is not None:
                        self._undo(last)
                        last = None
                    case "s":
                        return True, last
                    case "q":
                        return False, last
                    case _:
                        typer.echo("Nothing was accepted yet." if answer == "u" else "One of a, d, e, s, u, q.")
            except CoterieError as error:
                typer.secho(_safe(str(error)), fg="red")

    def accept(self, change: Proposal, text: str | None = None) -> Proposal:
        draft = self.house.draft
        before = self.portal.call(
            draft.documents.read, self.bound.workspace, self.bound.document, self.bound.branch
        ).text
        done = self.portal.call(partial(draft.proposals.accept, change.id, self.bound.person, text=text))
        self._write_back(before)
        where = f"commit {done.accepted_commit[:10]}" if self.bound.in_git else self.bound.file.name
        typer.secho(f"accepted → {where}", fg="green")
        return done

    def _undo(self, change: Proposal) -> None:
        draft = self.house.draft
        before = self.portal.call(
            draft.documents.read, self.bound.workspace, self.bound.document, self.bound.branch
        ).text
        self.portal.call(draft.proposals.undo, change.id, self.bound.person)
        self._write_back(before)
        typer.secho("undone", fg="green")

    def _write_back(self, before: str) -> None:
        from coterie.modes.draft.local_files import write_to_file

        self.portal.call(write_to_file, self.house.draft, self.bound, before)

    def card(self, change: Proposal, number: str) -> None:
        name = self.house.characters.get(change.author).name
        found = f"found: {change.how}" if change.placed else f"not found: {change.missing}"
        state = found if change.fresh or not change.placed else "stale: the words are gone"
        typer.secho(f"\n── {number}  {_safe(name)}  ({state})", bold=True)
        if change.reason:
            typer.echo(f"   {_safe(change.reason)}")
        if not change.inserts:
            for line in (change.exact if change.placed else change.original).splitlines():
                typer.secho(f" - {_safe(line)}", fg="red")
        for line in change.proposed.splitlines():
            typer.secho(f" + {_safe(line)}", fg="green")


@contextmanager
def _at_work(file: Path, plain: bool) -> Iterator[_Work]:
    with running_app() as (house, portal):
        from coterie.base.paths import Paths
        from coterie.characters.service import OWNER
        from coterie.modes.draft import Contributor
        from coterie.modes.draft.local_files import open_file

        you = Contributor(OWNER, house.characters.owner().name)
        bound = portal.call(partial(open_file, house.draft, file, you, Paths.locate().root / "drafts", plain=plain))
        yield _Work(house, portal, bound)


def _line(prompt: str) -> str | None:
    """A line, or None at the end."""
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt):
        typer.echo()
        return None


def _safe(text: str) -> str:
    from coterie.base.text import escape_controls

    return escape_controls(text)
