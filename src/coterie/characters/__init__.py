"""The cast: who there is to meet, and the files in which characters travel."""
