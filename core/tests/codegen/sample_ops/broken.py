"""A module that cannot be imported."""

raise OSError("libacme.so.3: cannot open shared object file")
