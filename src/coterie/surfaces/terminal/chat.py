"""A full-screen chat in the terminal, with the chats of any mode through the `Conversation` port.

Replies are shown as Markdown, but nothing in them acts: links are plain text and control characters are escaped.
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
from coterie.base.untrusted import escape_controls
from coterie.messaging import Conversation, ReplyActivity, ReplyDelta, ReplyReaction, ReplyUpdate, with_full_text

HELP = "/retry another reply · /stop (Esc) end a reply · /context how the chat stands · /quit (Ctrl-Q) leave"
_log = get_logger(__name__)


@dataclass(frozen=True)
class PastMessage:
    """A message from before the chat was opened."""

    speaker: str
    text: str
    mine: bool


@dataclass(frozen=True)
class TerminalConversation:
    """What the screen needs to know of a chat."""

    conversation: Conversation
    context: str
    person: str
    character: str
    """The name above its replies."""
    history: Callable[[], Sequence[PastMessage]]


class TerminalChat(App[None]):
    # A readable column, one empty line between messages, colour only where it carries meaning.
    CSS = """
    Header { background: $background; color: $text-muted; }
    Footer { background: $background; }
    #messages { padding: 0 2; scrollbar-size-vertical: 1; }
    #messages > * { max-width: 84; }
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

    def __init__(self, chat: TerminalConversation) -> None:
        super().__init__()
        self._chat = chat
        self._replying = False

    def compose(self) -> ComposeResult:
        yield Header(icon="")
        yield VerticalScroll(id="messages")
        yield Input(placeholder=f"Write to {escape_controls(self._chat.character)}, or /help", id="write")
        yield Footer()

    async def on_mount(self) -> None:
        self.title = escape_controls(self._chat.conversation.status(self._chat.context).title)
        for message in self._chat.history():
            await self._show(message)
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
                await self._notice(self._status())
            case _ if text.startswith("/"):
                await self._notice(HELP)
            case _ if self._replying:
                event.input.value = text
                await self._notice(f"{self._chat.character} is still speaking. Esc ends it.")
            case _:
                await self._show(PastMessage("You", text, mine=True))
                chat = self._chat
                self._show_reply(
                    chat.conversation.send_message(chat.context, text, person=chat.person, key=f"terminal:{new_id()}")
                )

    async def action_stop(self) -> None:
        if not await self._chat.conversation.stop(self._chat.context):
            await self._notice("No reply is running.")

    async def action_retry(self) -> None:
        if self._replying:
            await self._notice("Wait for the reply, or end it with Esc.")
        else:
            chat = self._chat
            self._show_reply(chat.conversation.retry(chat.context, person=chat.person))

    @work
    async def _show_reply(self, updates: AsyncIterator[ReplyUpdate]) -> None:
        """Show a reply as it arrives. Only its last block is laid out again, so that long ones stay fast."""
        self._replying = True
        await self._mount(Static(escape_controls(self._chat.character), classes="speaker", markup=False))
        body = Markdown(open_links=False)
        await self._mount(body)
        stream = Markdown.get_stream(body)
        try:
            async for update in with_full_text(updates):
                if isinstance(update, ReplyDelta):
                    await stream.write(escape_controls(update.text))
                elif isinstance(update, ReplyActivity):
                    self.sub_title = escape_controls(update.text)
                elif isinstance(update, ReplyReaction):
                    await self._notice(f"{self._chat.character} reacts: {update.emoji}")
                elif update.error:
                    await self._notice(update.error)
        except CoterieError as error:
            await self._notice(str(error))
        except Exception:
            _log.exception("a reply failed")
            await self._notice("Something unexpected went wrong; the log has the cause.")
        finally:
            await stream.stop()
            self._replying, self.sub_title = False, ""

    async def _show(self, message: PastMessage) -> None:
        if message.mine:
            await self._mount(Static(f"> {escape_controls(message.text)}", classes="mine", markup=False))
            return
        await self._mount(Static(escape_controls(message.speaker), classes="speaker", markup=False))
        await self._mount(Markdown(escape_controls(message.text), open_links=False))

    async def _notice(self, text: str) -> None:
        await self._mount(Static(escape_controls(redact(text)), classes="notice", markup=False))

    async def _mount(self, widget: Static | Markdown) -> None:
        messages = self.query_one("#messages", VerticalScroll)
        await messages.mount(widget)
        messages.anchor()

    def _status(self) -> str:
        status = self._chat.conversation.status(self._chat.context)
        notes = ", ".join(f"{name}: {value}" for name, value in status.notes)
        return f"{status.title}, with {status.character}: {status.turns} turns. {notes}".strip()
