"""Characters that somebody else plays: a program at the other end of a WebSocket, or a stand-in. P12"""
