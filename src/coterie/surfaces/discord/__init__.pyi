from .settings import DiscordSettings as DiscordSettings
from .setup import DiscordBot as DiscordBot
from .setup import DiscordMessenger as DiscordMessenger
from .setup import check_installed as check_installed
from .setup import check_token as check_token
