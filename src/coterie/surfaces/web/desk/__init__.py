"""Routes and pages of the desk."""
