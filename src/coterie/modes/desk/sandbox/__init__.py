"""Confined execution of commands."""
