from .bridge import TwitchBridge as TwitchBridge
from .bridge import TwitchService as TwitchService
from .bridge import TwitchSettings as TwitchSettings
from .irc import IrcLine as IrcLine
