"""What `schema/generate.py` makes of `schema/*.fbs`."""
