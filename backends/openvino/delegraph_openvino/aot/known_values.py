"""Operations on constants that OpenVINO computes in each run -> constants.

Its CPU device computes such an operation in the memory of the constant, which is another one in the next run:

    ~w + x      right in the first run, w + x in the second, right in the third (OpenVINO 2026.4)

What it computes when it compiles stays as it is, and with that weights that are stored in fewer bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph_openvino.aot.exact import nodes_behind, operations_of, shapes_behind
from delegraph_openvino.engine import Node, Output, openvino, opset15
from delegraph_openvino.runtime.tensors import tensor_over

__all__ = ["compute_known_values"]

_IN_THE_RUN: Final = frozenset(
    {
        *("BitwiseAnd", "BitwiseLeftShift", "BitwiseNot", "BitwiseOr", "BitwiseRightShift", "BitwiseXor"),
        *("Elu", "HardSigmoid", "If", "IsFinite", "IsInf", "IsNaN", "Selu"),
    }
)
"""Types of operations that are not computed when a model is compiled: each was measured, in three runs."""


def compute_known_values(core: openvino.Core, model: openvino.Model, weights: Mapping[str, NDArray[Any]]) -> None:
    """Replace, in place, operations on constants and on `weights`, by the name of their inputs, by their results."""
    for operation in operations_of(model):
        if operation.get_type_name() in _IN_THE_RUN and _is_known(operation):
            for output in operation.outputs():
                output.replace(_computed(core, output, weights))


def _is_known(operation: Node) -> bool:
    """Whether an operation depends on constants alone; shapes that are known become such."""
    shapes = shapes_behind(operation.output(0))
    if shapes is None or any(node.get_input_partial_shape(0).is_dynamic for node in shapes):
        return False
    for node in shapes:
        sizes = np.array(list(node.get_input_shape(0)), node.get_output_element_type(0).to_dtype())
        node.output(0).replace(openvino.op.Constant(sizes).output(0))
    return True


def _computed(core: openvino.Core, output: Output, weights: Mapping[str, NDArray[Any]]) -> Output:
    """A constant that has the elements of `output`. Weights are inputs here, which no run changes."""
    inputs = [node for node in nodes_behind(output) if node.get_type_name() == "Parameter"]
    model = openvino.Model([opset15.result(output)], inputs, "known")
    request = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    for index, node in enumerate(inputs):
        request.set_input_tensor(index, tensor_over(weights[node.get_friendly_name()]))
    request.infer()
    result = request.get_output_tensor(0)
    constant: Output = openvino.op.Constant(result).output(0)
    return constant
