"""Models: roles, routing, structured output, the embedded model, tokens, usage, recordings."""
