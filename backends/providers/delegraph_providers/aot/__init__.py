"""Partitioner and lowering of providers.

target.py       a device, as converters to ONNX are told of it
compiling.py    a graph -> binaries, and the nodes that the provider leaves
asking.py       a program -> its calls that the provider leaves, each with why
partitioner.py  named by users: asks, and proposes
lowering.py     partition -> compiled binary
"""
