"""The passphrase of the secrets store, as a command gets it: from the environment, else from the person, unseen."""

from __future__ import annotations

import os
import sys

from coterie.base.secrets import SecretsStore, passphrase_from_env


def ask_passphrase() -> str | None:
    if (given := passphrase_from_env(os.environ)) or not sys.stdin.isatty():
        return given
    import getpass

    return getpass.getpass("Passphrase of the secrets store: ")


def open_secrets_store() -> SecretsStore:
    from coterie.base.paths import Paths

    return SecretsStore(Paths.locate().secrets, ask_passphrase)
