"""Converted models: a product with the transposed table of an embedding reads the table itself.

    y = Gather(table, ids)           y = Gather(table, ids)
    z = MatMul(x, transposed)        z = FusedMatMul(x, table, transB=1)

    y = Gather(table, ids)           y = Gather(table, ids)                              of int8
    z = DynamicQuantizeMatMul(…)     z = DynamicQuantizeMatMul(x, Transpose(table))      once, when a session is made

Language models read their largest matrix twice, to embed tokens and for the scores of the next one; its two layouts
would take twice the memory. Either is packed when it is loaded, and as fast.

And a lookup in a table of int8 reads the codes of the table that a product multiplies.

    y = Cast(Gather(table, ids))       y = Gather(floats, Gather(codes, ids))
    z = MatMulNBits(x, codes)          z = MatMulNBits(x, codes)

`floats` has the values of each byte of the few rows: one of 8 bits, or two of 4. Where the table is the sum of two
parts, 16 * high + low, both parts are looked up and added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape

from delegraph_cpu.aot.convert import CpuModel
from delegraph_cpu.aot.graph import CONTRIB
from delegraph_cpu.aot.quantized.packed_weights import higher, pairs
from delegraph_cpu.blob import bytes_of
from delegraph_onnx.deferred import Deferred
from delegraph_onnx.graph_builder import initializer
from delegraph_onnx.ir_values import content_of, producer_of, put_in_place, readers_of

__all__ = ["read_tied_codes", "read_tied_tables"]


def read_tied_tables(converted: CpuModel) -> CpuModel:
    """`converted`, whose graph is edited."""
    graph = converted.model.graph
    tables = [value for value in graph.initializers.values() if _is_looked_up(value)]
    for weight in list(graph.initializers.values()) if tables else ():
        table = next((value for value in tables if _is_transposed(value.const_value, weight.const_value)), None)
        products = readers_of(weight)
        if table is None or not all(node.op_type in _READ and node.inputs[1] is weight for node in products):
            continue
        for node in products:
            _READ[node.op_type](node, table)
        del graph.initializers[str(weight.name)]
    return converted


def _is_looked_up(value: ir.Value) -> bool:
    return any(node.op_type == "Gather" and node.inputs[0] is value for node in readers_of(value))


def _is_transposed(table: ir.TensorProtocol | None, weight: ir.TensorProtocol | None) -> bool:
    """Whether `weight` is the transposed `table`: mostly they are made of one tensor."""
    if table is None or weight is None or weight.dtype != table.dtype:
        return False
    shape = table.shape.numpy()
    if len(shape) != 2 or weight.shape.numpy() != shape[::-1]:
        return False
    if isinstance(table, Deferred) and isinstance(weight, Deferred) and weight.stored == table.stored:
        known = table.identity is not None and weight.identity == ("transposed", table.identity)
        return known or np.array_equal(weight.read().T, table.read())
    return np.array_equal(weight.numpy().T, table.numpy())


def _read_table(product: ir.Node, table: ir.Value) -> None:
    attributes = [ir.AttrInt64("transB", 1)]
    fused = ir.Node(CONTRIB, "FusedMatMul", [product.inputs[0], table], attributes)
    put_in_place(product, [fused])


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
"""Products -> the functions that let them read the table."""


# ---- tables of int8 -----------------------------------------------------------------------------------------------

_BYTES: Final = np.arange(256)
_WHOLE: Final = (_BYTES - 128).astype(np.float32)
_LOW: Final = np.stack([_BYTES & 15, _BYTES >> 4], -1).astype(np.float32)
_HIGH: Final = np.asarray(16 * (_LOW - 8), np.float32)


@dataclass(frozen=True, slots=True)
class _Part:
    """Codes of all rows, (rows, bytes of a row), and the values of each byte."""

    codes: NDArray[np.uint8]
    floats: NDArray[np.float32]


def read_tied_codes(converted: CpuModel) -> CpuModel:
    """`converted`, whose graph is edited."""
    graph = converted.model.graph
    products = [node.inputs[1] for node in graph if node.op_type == "MatMulNBits"]
    codes = [content_of(value) for value in products if value is not None and value.const_value is not None]
    for table in list(graph.initializers.values()) if codes else ():
        casts = _casts_of_rows(table)
        parts = _parts(content_of(table), codes) if casts else None
        if parts is None:
            continue
        for cast in casts:
            _look_up(graph, table, cast, parts)
        del graph.initializers[str(table.name)]
    return converted


def _casts_of_rows(table: ir.Value) -> list[ir.Node]:
    """The casts to float32 of rows of `table`, if it is of int8 and read in no other way; otherwise none."""
    lookups = readers_of(table)
    if table.dtype != ir.DataType.INT8 or len(table.shape or ()) != 2 or table.is_graph_output():
        return []
    rows = [node.attributes.get_int("axis", 0) == 0 and node.inputs[0] is table for node in lookups]
    if not all(rows) or any(node.op_type != "Gather" for node in lookups):
        return []
    casts = [reader for node in lookups for reader in readers_of(node.outputs[0])]
    known = all(node.op_type == "Cast" and node.attributes["to"].as_int() == ir.DataType.FLOAT for node in casts)
    return casts if known and not any(node.outputs[0].is_graph_output() for node in lookups) else []


def _parts(table: NDArray[np.int8], codes: Sequence[NDArray[Any]]) -> list[_Part] | None:
    """The parts of `table` if they are among `codes`: the whole of it, or both of its halves."""
    whole = higher(table)
    for layout in ([(whole, _WHOLE)], [(pairs(whole >> 4), _HIGH), (pairs(whole & 15), _LOW)]):
        if all(any(_are_same(of_rows, stored) for stored in codes) for of_rows, _ in layout):
            return [_Part(of_rows, floats) for of_rows, floats in layout]
    return None


def _are_same(of_rows: NDArray[np.uint8], codes: NDArray[Any]) -> bool:
    """Whether the bytes, and their number in each row, are the same: the blob stores equal bytes once."""
    return codes.shape[0] == len(of_rows) and np.array_equal(np.asarray(bytes_of(codes)), np.asarray(bytes_of(of_rows)))


def _look_up(graph: ir.Graph, table: ir.Value, cast: ir.Node, parts: Sequence[_Part]) -> None:
    """Replace `cast`, and the Gather before it, by lookups of the parts' codes."""
    lookup, tape = producer_of(cast.inputs[0]), Tape()
    rows: list[ir.Value] = []
    for number, part in enumerate(parts):
        codes = _constant(graph, f"{table.name}.codes.{number}", part.codes)
        floats = _constant(graph, f"{table.name}.floats.{number}", part.floats)
        picked = tape.op("Gather", [codes, lookup.inputs[1]])
        rows.append(tape.op("Gather", [floats, tape.op("Cast", [picked], {"to": ir.DataType.INT32})]))
    total = rows[0] if len(rows) == 1 else tape.op("Add", rows)
    # two values for each byte: (…, bytes, 2) -> (…, columns)
    if parts[0].floats.ndim > 1:
        columns = _constant(graph, f"{table.name}.columns", np.array(content_of(table).shape[1:]))
        sizes = tape.op("Concat", [tape.op("Shape", [picked], {"end": -1}), columns], {"axis": 0})
        total = tape.op("Reshape", [total, sizes])
    put_in_place(cast, tape.nodes)
    if not readers_of(lookup.outputs[0]):
        graph.remove(lookup, safe=True)


def _constant(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    if name not in graph.initializers:
        graph.initializers[name] = initializer(name, array)
    return graph.initializers[name]
