"""Foundations that import nothing else of the package: errors, ids, clock, configuration, logs, files."""
