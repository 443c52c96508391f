"""A plan -> the values of a loaded method, and the memory in which they lie.

memory.py           sizes of buffers -> planned memory, and scratch memory for kernels
device_memory.py    the same on devices, and the copies to and fro
values.py           each value of the plan as it is now
value_parser.py     records, constants and memory -> values
tensors.py          the caller's tensors <-> arrays
borrowing.py        a plan -> which inputs and outputs may lie where the caller has them
writes.py           an instruction -> whether it may write what it writes
"""
