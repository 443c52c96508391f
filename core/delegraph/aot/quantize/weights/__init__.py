"""Weights, wherever they come from -> constants stored in 8 or 4 bits, under the user's names.

    given to a body of control flow     body_weights.py      ─┐
    computed from the model's           computed_weights.py  ─┴─> an attribute of the graph that reads it,
    a parameter, as it is or transposed                      ───> as it is or transposed
                                                                    │
    a call that a quantizer annotates   torchao              ───────┤
    any other call of a recipe          weight_only.py       ───────┴─> codes and scales
    stored by torchao's `quantize_`     ../torchao_weights.py ────────> codes and scales

layer_weights.py    a call -> where its weight is: the one table of such layers
packing.py          weights -> codes and scales, and back, in operators that every runtime has
stored_weights.py   codes and scales -> constants, and the calls that read them
names.py            constants named after the weights that they stand for
as_program.py       the converted module -> a program with the shapes that the first one was exported for
"""
