"""A full-screen chat in the terminal."""
