"""Routes and pages of characters."""
