"""`coterie draft`: ask a character about a file, and review its proposals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.base.errors import CoterieError
from coterie.base.untrusted import escape_controls
from coterie.cli.common import edit_text, new_app, open_app, read_line, run_app

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App
    from coterie.characters import Character
    from coterie.modes.draft import FileDocument, Member, Proposal, StartedReply

draft_app = new_app("draft")
_FILE = typer.Argument(help="A Markdown or text file, in a Git repository or not.")
_PLAIN = typer.Option("--plain", help="Do not use the file's Git repository: write only the file.")
_KEYS = "[a]ccept  [d]ecline  [e]dit  [s]kip  [u]ndo the last  [q]uit: "


@draft_app.command()
def ask(
    file: Annotated[Path, _FILE],
    question: Annotated[str, typer.Argument(help="The question, or the change you would like.")],
    by: Annotated[str | None, typer.Option("--as", help="Which character answers, by name.")] = None,
    brief: Annotated[str, typer.Option(help="The character's task in this thread.")] = "",
    search_replace: Annotated[
        bool, typer.Option("--search-replace", help="Ask for changes between conflict marks instead of tags.")
    ] = False,
    plain: Annotated[bool, _PLAIN] = False,
) -> None:
    """Ask a character about a file. It answers in prose and in proposals, which `review` shows."""
    with _open(file, plain) as session:
        from coterie.modes.draft import Member

        character = session.character(by)
        member = Member(bot=character.id, brief=brief, format="search_replace" if search_replace else "auto")
        count = session.ask(question, member, character)
        if count:
            plural = "s" if count > 1 else ""
            typer.secho(f"{count} proposal{plural} to review: coterie draft review {file}", dim=True)


@draft_app.command("open")
def open_folder(
    folder: Annotated[Path, typer.Argument(help="A folder or Git repository on this machine.")],
    name: Annotated[str, typer.Option(help="Its name on the page; the folder's own by default.")] = "",
) -> None:
    """Use a folder in place as a workspace, which the page then shows. Its Git history is not changed."""
    import asyncio

    with open_app() as app:
        adopt = app.draft.workspaces.adopt
        workspace = asyncio.run(adopt(str(folder.expanduser().absolute()), name, confirmed=True))
        typer.echo(f"{folder} is open at /draft (workspace {workspace}).")


@draft_app.command()
def review(
    file: Annotated[Path, _FILE],
    accept_all: Annotated[bool, typer.Option("--accept-all", help="Accept every proposal that still applies.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only show them.")] = False,
    plain: Annotated[bool, _PLAIN] = False,
) -> None:
    """Review the proposals for a file. Accepted ones are written to it, and committed if it is in Git."""
    with _open(file, plain) as session:
        pending = session.pending()
        if not pending:
            typer.echo(f'There are no proposals for {file}. Ask for some: coterie draft ask {file} "…"')
        last: Proposal | None = None
        for number, proposal in enumerate(pending, start=1):
            current = session.reload(proposal)
            session.show(current, f"{number}/{len(pending)}")
            if show or not current.fresh:
                continue
            if accept_all:
                session.accept(current)
            else:
                go_on, last = session.decide(current, last)
                if not go_on:
                    return


@draft_app.command()
def move(
    workspace: Annotated[str, typer.Argument(help="The id of the workspace, from the message that it is missing.")],
    folder: Annotated[Path, typer.Argument(help="The folder where its repository is now.")],
) -> None:
    """Say where the documents of a workspace are now."""
    with run_app() as (app, portal):
        portal.call(app.draft.workspaces.move, workspace, folder.expanduser().absolute())
    typer.echo(f"{workspace} is in {folder} now.")


@dataclass
class _Session:
    """A file that is opened as a document, with the commands on it."""

    app: App
    portal: BlockingPortal
    document: FileDocument

    def pending(self) -> list[Proposal]:
        queries, document = self.app.draft.proposal_queries, self.document
        return queries.of_document(document.workspace, document.branch, document.document, "pending")

    def reload(self, proposal: Proposal) -> Proposal:
        """The proposal after the file's current text is taken over."""
        self.portal.call(self.app.draft.local_files.read, self.document)
        return self.app.draft.proposal_queries.proposal(proposal.id)

    def character(self, name: str | None) -> Character:
        """The named character, else the first one, else a new editor."""
        if name is not None:
            return self.app.characters.find(name)
        if characters := self.app.characters.all():
            return characters[0]
        from coterie.characters import Identity

        editor = Identity(name="Editor", persona="A careful editor, who keeps the author's voice.")
        return self.portal.call(self.app.character_importer.author, editor)

    def ask(self, question: str, member: Member, character: Character) -> int:
        """Print the reply while it is written, then its proposals; returns how many there are."""
        draft, document = self.app.draft, self.document
        thread = self.portal.call(
            partial(
                draft.threads.open_thread,
                document.workspace,
                document.document,
                [member],
                document.person,
                branch=document.branch,
            )
        )
        typer.secho(f"{escape_controls(character.name)}: ", bold=True, nl=False)
        task = self.portal.start_task_soon(self._print_reply, thread.room, question, member)
        while True:
            try:
                started = task.result()
                break
            except KeyboardInterrupt:
                self.portal.call(draft.threads.stop_reply, thread.room)
        self.portal.call(self._wait_for_jobs, started.reply)
        turn = draft.timeline.turn(thread.room, started.reply)
        if turn.state == "truncated":
            typer.secho(f"[{escape_controls(turn.why)}]", dim=True)
        for note in draft.thread_queries.notes(thread.room):
            typer.secho(f"[{escape_controls(note.text)}]", dim=True)
        proposals = draft.proposal_queries.of_reply(thread.room, started.reply)
        for number, proposal in enumerate(proposals, start=1):
            self.show(proposal, f"{number}/{len(proposals)}")
        return len(proposals)

    async def _print_reply(self, room: str, question: str, member: Member) -> StartedReply:
        from coterie.modes.draft import parser_for, visible_text

        draft = self.app.draft
        parser = parser_for(draft.thread_queries.thread(room).member(member.bot).format)
        async with draft.feed.follow(room) as updates:
            started = await draft.threads.send_message(room, question, self.document.person, to=member.bot)
            async for text in updates.reply_text(started.reply):
                typer.echo(escape_controls(visible_text(parser.feed(text))), nl=False)
            typer.echo(escape_controls(visible_text(parser.end())))
        return started

    async def _wait_for_jobs(self, reply: str) -> None:
        """Wait for the reply's jobs, which may ask the model for a better quote."""
        import asyncio

        jobs = self.app.store.jobs
        for _ in range(1_200):
            open_jobs = [*await jobs.find(state="ready"), *await jobs.find(state="leased")]
            if not any(job.payload.get("reply") == reply for job in open_jobs):
                return
            await asyncio.sleep(0.05)

    def decide(self, proposal: Proposal, last: Proposal | None) -> tuple[bool, Proposal | None]:
        """Let the person decide. Returns whether to go on, and the last accepted proposal."""
        while True:
            answer = (read_line(_KEYS) or "q").strip().lower()[:1]
            try:
                match answer:
                    case "a":
                        return True, self.accept(proposal)
                    case "d":
                        comment = read_line("reason (optional): ") or ""
                        self.portal.call(self.app.draft.proposals.decline, proposal.id, self.document.person, comment)
                        return True, last
                    case "e":
                        text = edit_text(proposal.proposed)
                        if text is not None:
                            return True, self.accept(proposal, text)
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
                typer.secho(escape_controls(str(error)), fg="red")

    def accept(self, proposal: Proposal, text: str | None = None) -> Proposal:
        before = self._text()
        accept = partial(self.app.draft.proposals.accept, proposal.id, self.document.person, text=text)
        accepted = self.portal.call(accept)
        self.portal.call(self.app.draft.local_files.write_back, self.document, before)
        where = f"commit {accepted.accepted_commit[:10]}" if self.document.in_git else self.document.file.name
        typer.secho(f"accepted → {where}", fg="green")
        return accepted

    def _undo(self, proposal: Proposal) -> None:
        before = self._text()
        self.portal.call(self.app.draft.proposals.undo, proposal.id, self.document.person)
        self.portal.call(self.app.draft.local_files.write_back, self.document, before)
        typer.secho("undone", fg="green")

    def _text(self) -> str:
        document = self.document
        read = self.app.draft.documents.read
        return self.portal.call(read, document.workspace, document.document, document.branch).text

    def show(self, proposal: Proposal, number: str) -> None:
        name = self.app.characters.get(proposal.author).name
        placement = f"found: {proposal.how}" if proposal.placed else f"not found: {proposal.missing}"
        state = placement if proposal.fresh or not proposal.placed else "stale: the text has changed"
        typer.secho(f"\n── {number}  {escape_controls(name)}  ({state})", bold=True)
        if proposal.reason:
            typer.echo(f"   {escape_controls(proposal.reason)}")
        if not proposal.inserts:
            for line in (proposal.exact if proposal.placed else proposal.original).splitlines():
                typer.secho(f" - {escape_controls(line)}", fg="red")
        for line in proposal.proposed.splitlines():
            typer.secho(f" + {escape_controls(line)}", fg="green")


@contextmanager
def _open(file: Path, plain: bool) -> Iterator[_Session]:
    with run_app() as (app, portal):
        from coterie.characters import OWNER
        from coterie.modes.draft import Contributor

        owner = Contributor(OWNER, app.characters.owner().name)
        document = portal.call(partial(app.draft.local_files.open, file, owner, plain=plain))
        yield _Session(app, portal, document)
