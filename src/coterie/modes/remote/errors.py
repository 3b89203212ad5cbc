"""What can be wrong with a remote agent. Whatever it is, the person gets its sentence and nothing else happens.

AgentError
├── AgentUnreachable      there is no line to it
├── AgentSilent           the line is there, and nothing comes
├── AgentGarbled          what it sends is not the protocol
├── AgentRefused          it does not let us in
└── AgentFailed           it says itself that it cannot
"""

from __future__ import annotations

from coterie.base.errors import CoterieError

TRY_AGAIN = "Ask again in a while."


class AgentError(CoterieError):
    exit_code = 34

    def __init__(self, what: str, fix: str = TRY_AGAIN) -> None:
        super().__init__(what, fix)


class AgentUnreachable(AgentError):
    pass


class AgentSilent(AgentError):
    pass


class AgentGarbled(AgentError):
    pass


class AgentRefused(AgentError):
    pass


class AgentFailed(AgentError):
    pass
