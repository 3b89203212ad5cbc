"""Ways of being with characters. Modes do not know each other; each brings its events, views, commands and prompts."""
