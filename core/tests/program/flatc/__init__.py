"""What flatc makes of `schema/*.fbs` for the `flatbuffers` package: the reference for our reader and builder.

Written by `schema/generate.py`; do not edit.
"""
