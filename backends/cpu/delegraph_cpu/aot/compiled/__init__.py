"""A converted model -> the graph that lies in the blob, and what lies beside it.

tied_tables.py          a product with the transposed table of an embedding reads the table itself
joined_projections.py   query, key and value of one product
unfolded.py             constants of bytes that stay so while onnxruntime optimises
narrow_weights.py       weights of fewer bytes, widened when a session is made
beside.py               weights that lie beside the graph
in_place.py             inputs that are changed where they lie
debug_handles.py        names of the optimised graph's nodes -> debug handles
work.py                 how much there is to compute
"""
