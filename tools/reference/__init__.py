"""Reference pages and drawings generated from the code: `python -m tools.reference` writes them.

They are committed, and a test fails when one of them is out of date.
"""
