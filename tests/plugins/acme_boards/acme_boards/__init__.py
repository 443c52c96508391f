"""A device of two revisions: the numbers of their instructions, which both halves share."""

CODES = {"r2": {"add": 1, "relu": 2}, "r1": {"add": 7, "relu": 9}}
"""By revision, the newest first."""
