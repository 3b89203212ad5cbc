"""Locate quoted text in a document, and keep track of it through edits."""
