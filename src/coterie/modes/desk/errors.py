"""Errors of the desk.

DeskError
├── SandboxUnavailable   commands cannot be confined here, so they are refused
├── BadCommand           an invalid command
├── OutsideWorkspace     a path outside the workspace
├── WorkspaceFileError   a file cannot be read or changed
├── WorkspaceFull        the files of a workspace use all they may
├── Leak                 outgoing text contains a secret
├── BadTool              an unknown tool or invalid arguments
├── NotConfirmed         a tool that sends or spends was not confirmed
├── NoSuchProcess        no conversation, branch, worker or schedule with this id
├── BadSchedule          an invalid or past time
├── NoSuchSkill          an unknown or disabled skill
├── QuestionRefused      another character may not be asked, or not again today
├── McpServerError       an MCP server is unreachable or failed
└── SummaryFailed        a conversation could not be summarised; nothing was changed
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


class WorkspaceFull(DeskError):
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


class QuestionRefused(DeskError):
    pass


class McpServerError(DeskError):
    pass
