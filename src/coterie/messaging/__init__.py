"""The engine: rooms, turns, and the loop that turns a message into a reply. It knows no platform and no mode."""
