"""The tables of `schema/*.fbs`, as `schema/generate.py` writes them."""
