"""A call and specs -> its annotation, as torchao keeps it; and what a quantizer asks of values before it writes one."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final, TypeGuard

import torch
from torch.fx import Node

__all__ = ["ANNOTATION", "annotate", "annotation_of", "is_float_tensor", "is_weight", "shared_spec"]

ANNOTATION: Final = "quantization_annotation"
"""Where torchao keeps a node's `QuantizationAnnotation` (`Q_ANNOTATION_KEY` of `pt2e/quantizer/quantizer.py`)."""


def annotate(node: Node, inputs: Mapping[Any, Any], output: Any = None) -> None:
    """Say how what `node` takes is quantized, by value, and how its result is; where there is no spec, it stays float.

    What was said of `node` before is replaced.
    """
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

    node.meta[ANNOTATION] = QuantizationAnnotation(dict(inputs), output, _annotated=True)


def annotation_of(node: Node) -> Any:
    """torchao's `QuantizationAnnotation` of a node, with `input_qspec_map` and `output_qspec`; None where there is
    none."""
    return node.meta.get(ANNOTATION)


def shared_spec(edge_or_node: Any) -> Any:
    """The grid of a result, which its call stands for, or of what a call takes: (value, call)."""
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    return SharedQuantizationSpec(edge_or_node)


def is_float_tensor(
    value: object, dtypes: Container[torch.dtype] = (torch.float32, torch.float16, torch.bfloat16)
) -> TypeGuard[Node]:
    """Whether an argument is a tensor of floats, which is what there is to quantize."""
    tensor = value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(tensor, torch.Tensor) and tensor.dtype in dtypes


def is_weight(value: object) -> TypeGuard[Node]:
    """Whether an argument is the model's own: a parameter, a buffer or a constant, and nothing that a run gives."""
    return isinstance(value, Node) and value.op == "get_attr"
