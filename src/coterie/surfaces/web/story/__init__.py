"""Routes and pages of stories."""
