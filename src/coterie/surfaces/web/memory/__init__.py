"""Routes and pages of memories."""
