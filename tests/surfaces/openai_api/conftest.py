"""The OpenAI-compatible API is served together with the webhook."""

from tests.surfaces.webhook.conftest import serve

__all__ = ["serve"]
