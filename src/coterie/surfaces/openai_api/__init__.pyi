from .routes import openai_router as openai_router
from .settings import ApiSettings as ApiSettings
