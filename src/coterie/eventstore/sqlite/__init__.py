"""The event store on one SQLite file."""
