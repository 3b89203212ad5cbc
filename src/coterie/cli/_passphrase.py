"""The passphrase of the secrets store, as a command gets it: from the environment, else from the person, unseen."""

from __future__ import annotations

import os
import sys

from coterie.base.vault import Vault, passphrase_from


def ask_passphrase() -> str | None:
    if (given := passphrase_from(os.environ)) or not sys.stdin.isatty():
        return given
    import getpass

    return getpass.getpass("Passphrase of the secrets store: ")


def open_vault() -> Vault:
    from coterie.base.home import Home

    return Vault(Home.locate().secrets, ask_passphrase)
