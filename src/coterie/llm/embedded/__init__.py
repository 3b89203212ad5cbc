"""The embedded model: a small language model that runs inside this process."""
