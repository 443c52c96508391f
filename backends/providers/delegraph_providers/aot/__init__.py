"""Partitioner and lowering of providers.

targets.py      devices, as converters to ONNX are told of them, and tables for where none is here
halves.py       a graph in float32 -> in float16
compiling.py    a graph -> binaries, and the nodes that the provider leaves
assigning.py    a graph -> the nodes that the provider, or its table, leaves
asking.py       a program -> its calls that the provider leaves, each with why
partitioner.py  named by users: asks, and proposes
lowering.py     partition -> compiled binary, or graph
"""
