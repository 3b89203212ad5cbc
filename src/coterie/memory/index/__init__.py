"""Search indexes over memories: full text and vectors."""
