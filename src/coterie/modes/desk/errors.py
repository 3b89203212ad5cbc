"""What can be wrong at the desk.

DeskError
├── SandboxUnavailable   commands cannot be confined here, so they are refused
├── BadCommand           a command that cannot be run as asked
├── OutsideWorkspace     a path that leads out of the workspace
├── FileTrouble          a file that cannot be read or changed as asked
├── Leak                 a secret was about to leave
├── BadTool              a tool that is not there, or arguments that do not fit it
├── NotConfirmed         a tool that sends or spends, without the person's yes
├── NoSuchProcess        no branch, worker or schedule by this id
├── BadSchedule          a time that cannot be kept
├── NoSuchSkill          no skill by this name, or one that is switched off
├── NotAsked             another character may not be asked, or not again today
├── ToolServerTrouble    a server of tools (MCP) cannot be reached, or failed
└── SummaryFailed        the oldest of a conversation could not be summarised; nothing was changed
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class DeskError(CoterieError):
    exit_code = 60


class SandboxUnavailable(DeskError):
    exit_code = 61


class BadCommand(DeskError):
    pass


class OutsideWorkspace(DeskError):
    pass


class WorkspaceFileError(DeskError):
    pass


class Leak(DeskError):
    pass


class BadTool(DeskError):
    pass


class NotConfirmed(DeskError):
    http_status = 409


class NoSuchProcess(DeskError):
    http_status = 404


class SummaryFailed(DeskError):
    pass


class BadSchedule(DeskError):
    http_status = 422


class NoSuchSkill(DeskError):
    http_status = 404


class NotAsked(DeskError):
    pass


class McpServerError(DeskError):
    pass
