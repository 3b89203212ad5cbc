"""The model-driven agents of the desk: channel, branches and workers."""
