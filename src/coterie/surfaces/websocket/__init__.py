"""A crowd's chat over WebSocket: everybody's messages out, a person's messages in."""
