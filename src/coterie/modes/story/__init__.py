"""Story: one person and the characters they keep company with."""
