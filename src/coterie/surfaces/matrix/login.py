"""The login on the homeserver, kept in the data folder: its device is what makes repeated sends one message. Trap 3"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from coterie.base.errors import ConfigError
from coterie.base.files import write_private_json
from coterie.base.masking import redact
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.settings import MatrixSettings


@dataclass(frozen=True)
class Login:
    user: str
    device: str
    token: str


async def log_in(settings: MatrixSettings, file: Path) -> tuple[Homeserver, Login]:
    """With the login that was kept, or with the password, once."""
    login = _read_login(file)
    if login is None:
        if settings.password is None:
            raise ConfigError("There is no login for Matrix yet.", "Set matrix.password, for the first start at least.")
        server = Homeserver(settings.homeserver)
        told = await server.login(settings.user, settings.password.get_secret_value())
        login = Login(told["user_id"], told["device_id"], told["access_token"])
        write_private_json(file, asdict(login))
    else:
        server = Homeserver(settings.homeserver)
    redact.register(login.token)
    server.token = login.token
    return server, login


def _read_login(file: Path) -> Login | None:
    try:
        return Login(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read ({error}).", "Remove it to log in anew.") from None
