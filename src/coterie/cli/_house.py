"""A whole house for a command that talks: opened beside the command, and closed when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from coterie.app import App


@contextmanager
def running_app() -> Iterator[tuple[App, BlockingPortal]]:
    """The house runs in a thread of its own, so that reading a line stops nothing, and Ctrl-C only the reply."""
    from anyio.from_thread import start_blocking_portal

    with opened_app() as house, start_blocking_portal() as portal, portal.wrap_async_context_manager(house.running()):
        yield house, portal


@contextmanager
def opened_app() -> Iterator[App]:
    from coterie.app import App, load_settings, open_store, write_example_config
    from coterie.base.errors import InUse
    from coterie.base.logging import LogSettings, setup_logging
    from coterie.base.paths import Paths
    from coterie.cli._passphrase import ask_passphrase

    setup_logging(LogSettings(level="error"))  # a model's hiccup must not stand in the middle of a conversation
    home = Paths.locate()
    home.prepare()
    write_example_config(home)
    settings = load_settings(home, passphrase=ask_passphrase).settings
    try:
        opened = open_store(home)
        store = opened.__enter__()
    except InUse as error:
        raise InUse(
            error.what, "Talk through the server that runs (its page, or its HTTP API), or stop it and try again."
        ) from None
    try:
        yield App(home, settings, store)
    finally:
        opened.__exit__(None, None, None)
