"""Keeping the house in order: snapshots, backups, health, metrics."""
