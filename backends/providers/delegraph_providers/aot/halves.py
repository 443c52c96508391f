"""An ONNX model in float32 -> the same in float16, with float32 at its inputs, outputs and states.

x float32 ─> Cast ─> Conv(weights float16) ─> Cast ─> y float32
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import onnx_ir as ir

__all__ = ["in_float16"]

_LARGEST: Final = float(np.finfo(np.float16).max)
_WIDE, _NARROW = ir.DataType.FLOAT, ir.DataType.FLOAT16
_FLOAT_OPERANDS: Final = {"Resize": (1, 2)}
"""The inputs of operators that are float32 whatever is computed: a region, and scales."""


def in_float16(model: ir.Model) -> ir.Model:
    """Change `model` so that it computes in float16, its bodies too; returns it. Constants that are too large become
    the largest number; infinite ones stay."""
    for graph in model.graphs():
        _narrow_constants(graph)
        for node in graph:
            _narrow_attributes(node)
    main = model.graph
    for value in [*main.inputs]:
        if value.dtype == _WIDE:
            _cast_input(main, value)
    for index, value in enumerate(main.outputs):
        if value.dtype == _WIDE:
            main.outputs[index] = _cast_output(main, value)
    return model


def _narrow_constants(graph: ir.Graph) -> None:
    for value in [*graph.initializers.values()]:
        tensor = value.const_value
        if tensor is None or tensor.dtype != _WIDE or _stays(value):
            continue
        value.const_value = ir.LazyTensor(
            partial(_narrowed, tensor), dtype=_NARROW, shape=ir.Shape(tensor.shape.numpy()), name=value.name
        )
        value.dtype = _NARROW


def _stays(value: ir.Value) -> bool:
    return any(use.idx in _FLOAT_OPERANDS.get(use.node.op_type, ()) for use in value.uses())


def _narrowed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    array = np.asarray(tensor.numpy())
    finite = np.clip(array, -_LARGEST, _LARGEST)
    return ir.Tensor(np.where(np.isinf(array), array, finite).astype(np.float16))


def _narrow_attributes(node: ir.Node) -> None:
    """Casts, and constants that are attributes (`ConstantOfShape`)."""
    for name, attribute in [*node.attributes.items()]:
        if name in ("to", "dtype") and attribute.value == int(_WIDE):
            node.attributes[name] = ir.AttrInt64(name, int(_NARROW))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == _WIDE:
            node.attributes[name] = ir.AttrTensor(name, _narrowed(attribute.as_tensor()))


def _cast_input(graph: ir.Graph, value: ir.Value) -> None:
    uses = [*value.uses()]
    cast = ir.node("Cast", [value], {"to": int(_NARROW)})
    cast.outputs[0].name = f"{value.name}:f16"
    graph.insert_before(graph[0], cast)
    for use in uses:
        use.node.replace_input_with(use.idx, cast.outputs[0])


def _cast_output(graph: ir.Graph, value: ir.Value) -> ir.Value:
    cast = ir.node("Cast", [value], {"to": int(_WIDE)})
    widened = cast.outputs[0]
    widened.name, value.name = value.name, f"{value.name}:f16"
    widened.shape, widened.type = value.shape, ir.TensorType(_WIDE)
    value.dtype = _NARROW
    graph.append(cast)
    return widened
