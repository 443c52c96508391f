"""Records <-> flatbuffer, as the schemas lay tables out.

table_layout.py     a schema's tables -> their fields
builder.py          tables, written back to front
reader.py           tables, read where they lie, every offset checked
record_codec.py     a table <-> a record with the same fields
plan_codec.py       a plan's tables <-> its records, where these differ
"""
