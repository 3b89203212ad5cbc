from .login import log_in as log_in
from .login import reset as reset
from .service import MatrixService as MatrixService
from .settings import MatrixSettings as MatrixSettings
