"""Weights, wherever they come from -> constants stored in 8 or 4 bits, under the user's names.

layer_weights.py    a call -> where its weight is: the one table of such layers
body_weights.py     weights that bodies of control flow are given -> attributes of the bodies, and back
computed_weights.py weights that are computed from the model's -> weights
weight_only.py      the weights of calls that no quantizer annotates, stored in 8 or 4 bits
packing.py          weights -> codes and scales, and back, in operators that every runtime has
names.py            constants named after the weights that they stand for
reexport.py         the converted module -> a program with the shapes that the first one was exported for
"""
