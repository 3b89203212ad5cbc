"""The message catalogue of the page: `python -m tools.messages` collects the texts of templates, code and scripts.

It is committed, and a test fails when it is out of date.
"""
