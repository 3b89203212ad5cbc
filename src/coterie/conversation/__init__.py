"""Turns, streamed replies, the live feed of a room and the search over turns, for every mode."""
