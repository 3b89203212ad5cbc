"""The web surface: pages, the HTTP API, health and metrics."""

SURFACE = "web"
"""How the page is called where people have accounts on surfaces."""
