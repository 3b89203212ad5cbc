from .routes import webhook_router as webhook_router
from .surface import WebhookSettings as WebhookSettings
from .surface import attached as attached
