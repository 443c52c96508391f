"""Raises when it is imported."""

raise OSError("libacme.so.3: cannot open shared object file")
