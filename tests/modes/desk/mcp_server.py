"""An MCP server for tests: `python -m tests.modes.desk.mcp_server`, with a port for HTTP."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("tiny", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"The sum is {a + b}."


@server.tool()
def post_letter(to: str) -> str:
    """Send a letter."""
    return f"Sent to {to}."


@server.tool()
def environment() -> str:
    """Two environment variables."""
    return f"granted={os.environ.get('GRANTED', '')} other={os.environ.get('NOT_GRANTED', '')}"


@server.tool()
def fail() -> str:
    """Raise an error."""
    raise ValueError("it broke")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
