"""Two programs -> how they differ: methods, inputs, operators, delegates, weights, memory, sizes.

changes.py    one difference, and all of them, as JSON, tables and HTML
comparing.py  two programs -> their differences
weights.py    the weights of two programs: changed, moved, stored otherwise
"""
