"""Sessions of a room: live, simulated or replayed, and the streams they follow."""
