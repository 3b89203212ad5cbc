"""Routes and pages of operations: health, backups, jobs."""
