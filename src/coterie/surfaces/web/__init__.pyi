from .ops.pages import RestorePage as RestorePage
from .server import create_web as create_web
from .server import run_server as run_server
from .server_settings import ServerSettings as ServerSettings
from .server_settings import check_binding as check_binding
from .shared.login import hash_password as hash_password
