"""Converted models: a product with the transposed table of an embedding reads the table itself.

    y = Gather(table, ids)           y = Gather(table, ids)
    z = MatMul(x, transposed)        z = FusedMatMul(x, table, transB=1)

    y = Gather(table, ids)           y = Gather(table, ids)                              of int8
    z = DynamicQuantizeMatMul(…)     z = DynamicQuantizeMatMul(x, Transpose(table))      once, when a session is made

Language models read their largest matrix twice, to embed tokens and for the scores of the next one; the two layouts of
it would be twice the memory. Either is packed when it is loaded, and as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from delegraph_cpu.aot.convert import CpuModel
from delegraph_cpu.aot.graph import CONTRIB
from delegraph_onnx.ir_values import content_of, readers_of

__all__ = ["read_tied_tables"]


def read_tied_tables(converted: CpuModel) -> CpuModel:
    """`converted`, whose graph is edited."""
    graph = converted.model.graph
    tables = [value for value in graph.initializers.values() if _is_looked_up(value)]
    for weight in list(graph.initializers.values()) if tables else ():
        table = next((one for one in tables if _is_transposed(content_of(one), content_of(weight))), None)
        products = readers_of(weight)
        if table is None or not all(node.op_type in _READ and node.inputs[1] is weight for node in products):
            continue
        for node in products:
            _READ[node.op_type](node, table)
        del graph.initializers[str(weight.name)]
    return converted


def _is_looked_up(value: ir.Value) -> bool:
    return any(node.op_type == "Gather" and node.inputs[0] is value for node in readers_of(value))


def _is_transposed(table: NDArray[Any], weight: NDArray[Any]) -> bool:
    """Whether `weight` is what `table` is, transposed: mostly the same memory."""
    if table.ndim != 2 or weight.shape != table.shape[::-1] or weight.dtype != table.dtype:
        return False
    same_memory = weight.ctypes.data == table.ctypes.data and weight.strides == table.strides[::-1]
    return same_memory or np.array_equal(weight.T, table)


def _read_table(product: ir.Node, table: ir.Value) -> None:
    attributes = [ir.AttrInt64("transB", 1)]
    fused = ir.Node(CONTRIB, "FusedMatMul", [product.inputs[0], table], attributes)
    old, new = product.outputs[0], fused.outputs[0]
    new.name = old.name  # which debug handles go by
    assert isinstance(product.graph, ir.Graph)
    product.graph.insert_before(product, fused)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    product.graph.remove(product, safe=True)


def _read_turned(product: ir.Node, table: ir.Value) -> None:
    turned = ir.Node("", "Transpose", [table], [ir.AttrInt64s("perm", [1, 0])])
    turned.outputs[0].name = f"{product.outputs[0].name}.turned"
    assert isinstance(product.graph, ir.Graph)
    product.graph.insert_before(product, turned)
    product.replace_input_with(1, turned.outputs[0])


_READ: Final[Mapping[str, Callable[[ir.Node, ir.Value], None]]] = {
    "MatMul": _read_table,
    "DynamicQuantizeMatMul": _read_turned,
}
"""Products -> how they read the table."""
