"""ExecuTorch's `executorch.devtools.intermediate_output_tap`: values on the way as outputs of the program, through any
backend.

    tapped, specs = tap_intermediate_outputs_(torch.export.export(model, inputs))
    edge = to_edge_transform_and_lower(tapped, partitioner=[…])
    strip_taps_(edge)
    program = edge.to_executorch()                  # its outputs[specs[0].output_index] is the first tap's value
"""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
