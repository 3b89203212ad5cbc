"""Routes and pages of settings."""
