"""Crowd: a room full of personas around a live stream, each deciding for itself. There is no director."""
