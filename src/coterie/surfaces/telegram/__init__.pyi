from .routes import telegram_router as telegram_router
from .service import BotInfo as BotInfo
from .service import TelegramService as TelegramService
from .service import check_token as check_token
from .settings import WEBHOOK_PATH as WEBHOOK_PATH
from .settings import TelegramSettings as TelegramSettings
from .setup import TelegramMessenger as TelegramMessenger
