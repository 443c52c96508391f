"""Images made larger or smaller with antialiasing: a product with a constant matrix for each direction.

    y = R @ x @ C.T        x (…, h, w), R (new h, h), C (new w, w)

The matrices are torch's own operator applied to the identity, so that they have its weights, whatever the filter.
onnxruntime's Resize has an antialiasing of its own, with Pillow's rules at the borders.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.authoring import as_array, resize_scales
from delegraph_onnx.converters.table import convert_with, unless
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import are_known, dtype_of, shape_of


@convert_with(
    """_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa
    _upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec""",
    check=unless(
        lambda node, input, *_: are_known(*shape_of(input)[2:], *shape_of(node)[2:]),
        "antialiasing to or from a size that is dynamic",
    ),
    keep=True,
    needs_elements=True,
)
def antialiased(
    g: GraphBuilder, node: Node, input: Node, output_size: object, align_corners: bool, *_: object
) -> ir.Value:
    scales_h, scales_w = resize_scales(node)
    (height, width), (new_height, new_width) = shape_of(input)[2:], shape_of(node)[2:]
    rows = _matrix(node, int(height), int(new_height), align_corners, scales_h)
    columns = _matrix(node, int(width), int(new_width), align_corners, scales_w)
    wide = g.op("MatMul", g.value(input), g.weight(f"{node.name}.columns", np.ascontiguousarray(columns.T)))
    return g.op("MatMul", g.weight(f"{node.name}.rows", rows), wide)


def _matrix(node: Node, size: int, new_size: int, align_corners: bool, scale: float | None) -> NDArray[np.floating]:
    """The matrix that maps a column of `size` elements to one of `new_size`."""
    target = node.target
    assert isinstance(target, OpOverload)
    identity = torch.eye(size, dtype=dtype_of(node))[None, None]
    with torch.no_grad():
        matrix = target.overloadpacket.default(identity, [new_size, size], align_corners, scale, None)
    return as_array(matrix[0, 0])
