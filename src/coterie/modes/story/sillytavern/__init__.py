"""Moving in from SillyTavern: reading its data folder, converting its chats, and importing all of it."""
