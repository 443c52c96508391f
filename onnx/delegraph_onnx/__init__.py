"""Edge program -> ONNX for a target: a library for backends on engines that read ONNX.

target.py           what an engine can and does, as data
converters/         operator -> ONNX, a file for each family, and the table of them
integers.py         what stands for a float value: integers, their scale and zero point; how they are stored
graph_builder.py    the graph in the making
convert.py          an edge program -> an ONNX model with the delegate's inputs, outputs and states
node_facts.py       what converters ask of a node's value; dtypes.py, positions.py
indexed.py          which inputs are places in a tensor, for whoever gives one that is not there
graph_patterns.py   what fusions look for
"""
