"""Routes and pages of drafts."""
