"""Who handles what: by the type of what came in and its key, with `*` for the rest. P1

A command's key is its name, a callback's its action, a member change's what changed; a message has none. A surface may
put its own handler in the place of the common one. A handler that fails never stops a surface: the person gets a plain
sentence, the log gets the cause.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.masking import redact
from coterie.engine.protocol import (
    Incoming,
    IncomingCallback,
    IncomingCommand,
    MemberChange,
    Outgoing,
    OutgoingNotification,
)

Handler = Callable[[Any], AsyncIterator[Outgoing]]
H = TypeVar("H", bound=Handler)
ANY = "*"
HANDLER_FAILED = "Something went wrong here, and it has been noted. Please try again."
_log = get_logger(__name__)


class MessageDispatcher:
    def __init__(self) -> None:
        self._handlers: dict[tuple[str, type[Incoming], str], Handler] = {}

    def on(self, kind: type[Incoming], key: str = ANY, *, surface: str = ANY) -> Callable[[H], H]:
        """Mark a function as the handler of this type and key, everywhere or on one surface only."""

        def register(handler: H) -> H:
            self._handlers[surface, kind, key] = handler
            return handler

        return register

    def handler_for(self, incoming: Incoming) -> Handler | None:
        """The closest one: this surface before all surfaces, this key before any key."""
        key, kind = handler_key(incoming), type(incoming)
        for surface in (incoming.room.surface, ANY):
            for wanted in (key, ANY):
                if (found := self._handlers.get((surface, kind, wanted))) is not None:
                    return found
        return None

    async def dispatch(self, incoming: Incoming) -> AsyncIterator[Outgoing]:
        handler = self.handler_for(incoming)
        if handler is None:
            return
        try:
            async for outgoing in handler(incoming):
                yield outgoing
        except CoterieError as error:
            _log.warning("not handled", surface=incoming.room.surface, key=incoming.key, error=str(error))
            yield OutgoingNotification(room=incoming.room, text=redact(str(error)))
        except Exception:
            _log.exception("handler failed", surface=incoming.room.surface, key=incoming.key)
            yield OutgoingNotification(room=incoming.room, text=HANDLER_FAILED)


def handler_key(incoming: Incoming) -> str:
    match incoming:
        case IncomingCommand(name=name):
            return name
        case IncomingCallback(action=action):
            return action
        case MemberChange(change=change):
            return change
        case _:
            return ANY
