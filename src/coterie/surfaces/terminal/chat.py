"""The full-screen chat: what was said above, what you write below, words as they are spoken. P16

It holds a conversation of any mode through the engine's port. What characters say is shown as Markdown, but never acts:
links are text, and characters that would move a cursor are shown instead of obeyed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Header, Input, Markdown, Static

from coterie.base.errors import CoterieError
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.text import escape_controls
from coterie.messaging.ports import Conversation, ReplyActivity, ReplyText, ReplyUpdate

HELP = "/retry another reply · /stop (Esc) end a reply · /context how the chat stands · /quit (Ctrl-Q) leave"
_log = get_logger(__name__)


@dataclass(frozen=True)
class PastMessage:
    """Something that was said before."""

    speaker: str
    text: str
    mine: bool


@dataclass(frozen=True)
class TerminalConversation:
    """A chat as the screen needs it."""

    conversation: Conversation
    context: str
    person: str
    character: str
    """The name above what is said."""
    history: Callable[[], Sequence[PastMessage]]


class TerminalChat(App[None]):
    # A column that can be read, one empty line between any two things, and colour only where it tells something.
    CSS = """
    Header { background: $background; color: $text-muted; }
    Footer { background: $background; }
    #said { padding: 0 2; scrollbar-size-vertical: 1; }
    #said > * { max-width: 84; }
    .mine { color: $text-muted; margin: 1 0 0 0; }
    .speaker { text-style: bold; color: $primary; margin: 1 0 0 0; }
    .notice { color: $warning; margin: 1 0 0 0; }
    Markdown { margin: 0; padding: 0; }
    Markdown > MarkdownBlock:last-child { margin-bottom: 0; }
    #write { border: round $surface-lighten-2; background: $background; padding: 0 1; }
    #write:focus { border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+r", "retry", "Another reply"),
        Binding("ctrl+q", "quit", "Leave"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, talking: TerminalConversation) -> None:
        super().__init__()
        self._talking = talking
        self._speaking = False

    def compose(self) -> ComposeResult:
        yield Header(icon="")
        yield VerticalScroll(id="said")
        yield Input(placeholder=f"Write to {escape_controls(self._talking.character)}, or /help", id="write")
        yield Footer()

    async def on_mount(self) -> None:
        self.title = escape_controls(self._talking.conversation.status(self._talking.context).title)
        for line in self._talking.history():
            await self._tell(line)
        self.query_one("#write", Input).focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        event.input.clear()
        match text.split():
            case []:
                return
            case ["/quit" | "/q" | "/exit"]:
                self.exit()
            case ["/stop"]:
                await self.action_stop()
            case ["/retry"]:
                await self.action_retry()
            case ["/context"]:
                await self._notice(self._standing())
            case _ if text.startswith("/"):
                await self._notice(HELP)
            case _ if self._speaking:
                event.input.value = text
                await self._notice(f"{self._talking.character} is still speaking. Esc ends it.")
            case _:
                await self._tell(PastMessage("You", text, mine=True))
                talking = self._talking
                said = talking.conversation.send_message(
                    talking.context, text, person=talking.person, key=f"terminal:{new_id()}"
                )
                self._hear(said)

    async def action_stop(self) -> None:
        if not await self._talking.conversation.stop(self._talking.context):
            await self._notice("Nobody is speaking.")

    async def action_retry(self) -> None:
        if self._speaking:
            await self._notice("Wait for the reply, or end it with Esc.")
        else:
            talking = self._talking
            self._hear(talking.conversation.retry(talking.context, person=talking.person))

    @work
    async def _hear(self, speech: AsyncIterator[ReplyUpdate]) -> None:
        """A reply, word by word. Only its last block is laid out anew, so that a long one stays quick."""
        self._speaking = True
        await self._put(Static(escape_controls(self._talking.character), classes="speaker", markup=False))
        body = Markdown(open_links=False)
        await self._put(body)
        stream, told = Markdown.get_stream(body), ""
        try:
            async for one in speech:
                if isinstance(one, ReplyText):
                    told += one.text
                    await stream.write(escape_controls(one.text))
                    continue
                if isinstance(one, ReplyActivity):
                    self.sub_title = escape_controls(one.text)
                    continue
                if one.text.startswith(told):
                    await stream.write(escape_controls(one.text[len(told) :]))  # words that came with the end
                if one.error:
                    await self._notice(one.error)
        except CoterieError as error:
            await self._notice(str(error))
        except Exception:
            _log.exception("a reply failed")
            await self._notice("Something unexpected went wrong; the log has the cause.")
        finally:
            await stream.stop()
            self._speaking, self.sub_title = False, ""

    async def _tell(self, line: PastMessage) -> None:
        if line.mine:
            await self._put(Static(f"> {escape_controls(line.text)}", classes="mine", markup=False))
            return
        await self._put(Static(escape_controls(line.speaker), classes="speaker", markup=False))
        await self._put(Markdown(escape_controls(line.text), open_links=False))

    async def _notice(self, text: str) -> None:
        await self._put(Static(escape_controls(redact(text)), classes="notice", markup=False))

    async def _put(self, widget: Static | Markdown) -> None:
        said = self.query_one("#said", VerticalScroll)
        await said.mount(widget)
        said.anchor()

    def _standing(self) -> str:
        standing = self._talking.conversation.status(self._talking.context)
        notes = ", ".join(f"{name}: {what}" for name, what in standing.notes)
        return f"{standing.title}, with {standing.character}: {standing.turns} turns. {notes}".strip()
