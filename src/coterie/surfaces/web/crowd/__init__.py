"""Routes and pages of crowd rooms."""
