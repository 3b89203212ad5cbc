"""Models: settings and roles, routing, providers, structured output, tokens, usage, recordings."""
