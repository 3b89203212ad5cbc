from .chat import PastMessage as PastMessage
from .chat import TerminalChat as TerminalChat
from .chat import TerminalConversation as TerminalConversation
