"""An HTTP API that is compatible with OpenAI's chat completions."""
