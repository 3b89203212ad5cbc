from .login import log_in as log_in
from .login import reset as reset
from .service import MatrixService as MatrixService
from .settings import MatrixSettings as MatrixSettings
from .setup import MatrixMessenger as MatrixMessenger
from .setup import check_login as check_login
