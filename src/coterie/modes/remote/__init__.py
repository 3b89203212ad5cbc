"""Characters that an external program (a remote agent) plays over a WebSocket, or a script in place of one."""
