"""Matrix: a Space per person with a room per chat, on any homeserver."""
