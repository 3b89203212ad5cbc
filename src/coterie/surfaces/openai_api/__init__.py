"""The OpenAI-compatible API: chat clients talk to characters as if they were models."""
