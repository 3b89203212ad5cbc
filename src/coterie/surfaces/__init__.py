"""Where people meet the characters. Surfaces do not know each other; the engine knows none of them."""
