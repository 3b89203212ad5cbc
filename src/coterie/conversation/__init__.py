"""What a chat consists of: turns, replies, the live feed and search."""
