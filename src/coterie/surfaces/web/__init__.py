"""The web surface: pages, the HTTP API, health and metrics."""
