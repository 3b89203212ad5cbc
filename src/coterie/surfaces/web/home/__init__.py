"""Routes and pages of the start page."""
