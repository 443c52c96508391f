"""Edge nodes -> ONNX graph: the values converted so far, constants, operators that simplify as they are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import onnx_ir as ir
import sympy
import torch
from numpy.typing import NDArray
from torch.fx import Graph, Node
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from delegraph.aot import ResolvedSignature
from delegraph.aot.authoring import Constants, as_array, debug_handles, numpy_dtype
from delegraph.interfaces import BlobTensor
from delegraph.program.flat_tensor import TensorLayout
from delegraph_onnx.deferred import Deferred
from delegraph_onnx.dtypes import COMPLEX, HALVES, ONNX_TYPES, computed_in
from delegraph_onnx.ir_values import nodes_within
from delegraph_onnx.node_facts import (
    Dim,
    are_known,
    dtype_of,
    in_words,
    outer_dtype_of,
)
from delegraph_onnx.target import Target

if TYPE_CHECKING:
    from delegraph_onnx.integers import Affine, Integers

__all__ = ["Converted", "Fusion", "GraphBuilder", "Scalar", "Size", "TensorLike", "array_of", "initializer"]

OPSET_OF_ATTENTION: Final = 23
"""The first opset with `_OF_ATTENTION`; graphs without these operators are written for older engines as well."""
_OF_ATTENTION: Final = ("Attention", "RotaryEmbedding")

Scalar: TypeAlias = int | float | bool
"""A Python number."""
Size: TypeAlias = "int | Node"
"""A size that is known, or the node that computes it."""
TensorLike: TypeAlias = "Node | ir.Value | Scalar"
"""An argument that may stand for a tensor."""
Converted: TypeAlias = "ir.Value | Sequence[ir.Value | None]"
"""The value of a call, or one for each of its results; None for those that are not used."""


class Fusion(Protocol):
    """Calls that are converted together: the call in whose place, and the calls that it replaces."""

    @property
    def root(self) -> Node:
        """The call in whose place the fusion is converted: the last one."""

    @property
    def replaced(self) -> frozenset[Node]:
        """Calls whose values `convert` sets, or that nobody else reads."""

    def convert(self, g: GraphBuilder) -> None:
        """Add its operators to the graph, and the values of the root and of the replaced calls to `g.values`."""


class GraphBuilder:
    """An ONNX graph under construction, for `target`. Backends extend it where the target's data does not suffice: by
    operators of their engine (`own`), fused calls (`fusions`), and a last change (`finished`).

    `values` maps each converted fx node to its value (or values, for a node with several results); a SymInt is an
    int64 scalar. `integers` are the integers of quantized values; `wanted` is the grid on which all users put a node's
    result, for operators that compute on integers; `constants` are the known contents, in the dtypes of the delegate.
    `debug_handles` are the handles of the calls that each value was made for; `ranges` are those of the symbolic sizes,
    `without_run` the sizes for which 0 means that nothing runs. `external` are the layouts of weights in a `.ptd`;
    `copies` are further inputs for these weights.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.ranges: Mapping[sympy.Symbol, ValueRanges[Any]] = {}
        self.without_run: frozenset[str] = frozenset()
        self.values: dict[Node, Converted] = {}
        self.nodes: list[ir.Node] = []
        self.is_in_body = False
        """Whether the operators that are added now are those of a body of If, Loop or Scan."""
        self.initializers: dict[str, ir.Value] = {}
        self.integers: dict[Node, Integers | Sequence[Integers]] = {}
        self.wanted: dict[Node, Affine] = {}
        self.debug_handles: dict[ir.Value, tuple[int, ...]] = {}
        self.constants = Constants()
        self._count = 0
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self.external: dict[Node, TensorLayout] = {}
        self.copies: list[tuple[Node, BlobTensor]] = []
        self._external: list[ir.Value] = []
        self._shapes: dict[ir.Value, tuple[int | str, ...]] = {}

    # ---- the engine's own --------------------------------------------------------------------------

    def prepare(self, graph: Graph) -> None:
        """Look at a graph, the partition's or a body's, before its calls are converted."""

    def fusions(self, graph: Graph, signature: ResolvedSignature) -> Mapping[Node, Fusion]:
        """The fused calls of the partition, by the last call of each."""
        return {}

    def own(self, node: Node) -> Converted | None:
        """The value(s) of a call by operators of the engine's own; None where the table's row is to convert it."""
        return None

    def attention_to_long_rows(
        self, query: ir.Value, key: ir.Value, value: ir.Value, heads: int, scale: float
    ) -> ir.Value:
        """softmax(query @ key.T * scale) @ value of (batch, rows, heads * size) each, of many rows, none hidden."""
        return self.op("Attention", query, key, value, q_num_heads=heads, kv_num_heads=heads, scale=scale)

    def product_with_transposed(self, x: ir.Value, y: ir.Value, rank: int) -> ir.Value:
        """`x @ y.mT`, both of `rank` dims."""
        return self.op("MatMul", x, self.transpose(y, [*range(rank - 2), rank - 1, rank - 2]))

    def products_of_experts(self, matrices: Node, rows: Node) -> Callable[[ir.Value, int], ir.Value] | None:
        """`(x, expert) -> x @ matrices[expert]` by operators of the engine's own, if it has some for the way in which
        the matrices (experts, inner, outputs) are stored; `rows` are those of (experts * outputs, inner)."""
        return None

    def finished(self, nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> Sequence[ir.Node]:
        """The operators of the finished graph, in order; `nodes` are those that `outputs` need."""
        return nodes

    def shape_of(self, value: ir.Value) -> tuple[int | str, ...] | None:
        """The shape of `value` if it was recorded (`record`)."""
        return self._shapes.get(value)

    # ---- values ----------------------------------------------------------------------------------

    def add_parameter(self, node: Node, tensor: torch.Tensor) -> None:
        """Make the placeholder `node` an initialiser over the memory of `tensor`."""
        if tensor.is_complex():
            array = as_array(torch.view_as_real(tensor.resolve_conj()))
            self.constants.hold(node, array)
            self.values[node] = self._initializer(node.name, array)
            return
        weight = Deferred.of(node.name, tensor, numpy_dtype(dtype_of(node)))
        self.constants.hold(node, weight.numpy)
        self.values[node] = self._initializer(node.name, weight)

    def add_external(self, node: Node, layout: TensorLayout) -> BlobTensor:
        """Make the placeholder `node` an input of the graph, with unknown content, that lies as in a `.ptd`. The dims
        of the result are in the order in which they lie there."""
        self.external[node] = layout
        self.values[node], info = self._external_input(node, node.name)
        return info

    def external_value(self, node: Node) -> ir.Value:
        """An external weight, as an input of the graph for each use, which `quantized/weights.py` explains."""
        if all(use.node.op_type in ("Cast", "DequantizeLinear") for use in self.value(node).uses()):
            return self.value(node)
        value, info = self._external_input(node, f"{node.name}.{self._count}")
        self.copies.append((node, info))
        return value

    def _external_input(self, node: Node, name: str) -> tuple[ir.Value, BlobTensor]:
        layout = self.external[node]
        order = layout.dim_order
        shape = tuple(layout.sizes[dim] for dim in order)
        dtype = outer_dtype_of(node)
        pair = [2] if dtype in COMPLEX else []
        tensor_type = ir.TensorType(ONNX_TYPES[COMPLEX.get(dtype, dtype)])
        stored = ir.Value(name=name, shape=ir.Shape([*shape, *pair]), type=tensor_type)
        self._external.append(self.record(stored, [*shape, *pair]))
        inner = self.record(self.cast(stored, dtype_of(node)), shape) if dtype in HALVES else stored
        permutation = [order.index(dim) for dim in range(len(order))]
        value = self.transpose(inner, [*permutation, len(order)] if pair else permutation)
        return value, BlobTensor(name, str(dtype).removeprefix("torch."), shape)

    def bind(self, placeholder: Node, argument: TensorLike) -> None:
        """Give the input of a control-flow body the value of the call's argument, with all that is known of it."""
        if not isinstance(argument, Node):
            self.values[placeholder] = self.tensor(argument, dtype_of(placeholder))
            return
        self.values[placeholder] = self.values[argument]
        self.constants.hold(placeholder, self.parameter(argument))
        self.integers.pop(placeholder, None)
        if argument in self.integers:
            self.integers[placeholder] = self.integers[argument]

    def parameter(self, argument: object) -> NDArray[Any] | None:
        """The content of `argument` if it is a lifted constant or a weight that is not external, else None."""
        return self.constants.array(argument) if isinstance(argument, Node) and argument.op == "placeholder" else None

    def number(self, argument: TensorLike) -> Scalar | None:
        """`argument` if it is a Python number or a constant without dims, else None."""
        if not isinstance(argument, Node):
            return None if isinstance(argument, ir.Value) else argument
        array = self.parameter(argument)
        if array is None or array.ndim:
            return None
        written = self.constants.number(argument)
        number: Scalar = array.item() if written is None or isinstance(written, complex) else written
        return number

    def value(self, argument: Node | ir.Value) -> ir.Value:
        """The value of a converted node with one result."""
        value = self.values[argument] if isinstance(argument, Node) else argument
        assert isinstance(value, ir.Value), f"{argument} has several results"
        return value

    def tensor(self, argument: TensorLike, dtype: torch.dtype) -> ir.Value:
        """`argument` as a value of `dtype`: a node, cast if it must be, or a constant made of a Python number.

        A bare value is taken to be of `dtype` already.
        """
        if isinstance(argument, ir.Value):
            return argument
        if not isinstance(argument, Node):
            return self.constant(array_of(argument, dtype))
        if dtype_of(argument) == dtype and outer_dtype_of(argument) not in HALVES:
            return self.value(argument)
        number = self.number(argument)  # which is rounded where the dtype is a half
        if number is None and dtype_of(argument) == dtype:
            return self.value(argument)
        return self.cast(self.value(argument), dtype) if number is None else self.tensor(number, dtype)

    def operand(self, argument: Node | Scalar, dtype: torch.dtype) -> ir.Value:
        """`argument` as torch casts it to `dtype`, a dtype of the program: a number is rounded if that is a half.

        Not for products and quotients, in which torch does not round the number.
        """
        number = self.number(argument)
        if dtype in HALVES and number is not None:
            return self.constant(as_array(torch.tensor(number, dtype=torch.float64).to(dtype).to(computed_in(dtype))))
        value = self.tensor(argument, computed_in(dtype))
        if dtype not in HALVES or not isinstance(argument, Node) or outer_dtype_of(argument) in HALVES | {torch.bool}:
            return value
        return self.cast(self.cast(value, dtype), computed_in(dtype))

    def constant(self, array: NDArray[Any]) -> ir.Value:
        """A constant; equal constants share one value."""
        array = np.ascontiguousarray(array) if array.ndim else array
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer(f"constant_{len(self._constants)}", array)
        return self._constants[key]

    def weight(self, name: str, array: NDArray[Any]) -> ir.Value:
        """An initialiser for a rearranged weight; `name` need not be unique."""
        return self._initializer(f"{name}.{len(self.initializers)}", np.ascontiguousarray(array))

    def transposed_parameter(self, argument: Node) -> ir.Value | None:
        """An initialiser for the transpose of a lifted constant or a weight that is not external; None of others."""
        value = self.values[argument] if argument.op == "placeholder" else None
        if not isinstance(value, ir.Value) or not isinstance(value.const_value, Deferred):
            return None
        name = f"{argument.name}.{len(self.initializers)}"
        return self._initializer(name, value.const_value.transposed(name))

    def ints(self, sizes: Sequence[int]) -> ir.Value:
        """A 1-D int64 constant."""
        return self.constant(np.array(sizes, np.int64))

    def filled(self, number: int, sizes: Sequence[Any], dtype: torch.dtype) -> ir.Value:
        """A constant of these sizes, which must be known, filled with a number."""
        return self.constant(np.full(tuple(sizes), number, numpy_dtype(dtype)))

    def sizes(self, sizes: Sequence[Size | ir.Value]) -> ir.Value:
        """A 1-D int64 value of sizes, each known or a SymInt."""
        if are_known(*sizes):
            return self.ints(sizes)  # type: ignore[arg-type]
        parts = [self.ints([s]) if isinstance(s, int) else self.reshape(self.value(s), [1]) for s in sizes]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def size(self, value: ir.Value, dim: int) -> ir.Value:
        """Size of `value` along `dim` (not negative), an int64 scalar."""
        return self.reshape(self.op("Shape", value, start=dim, end=dim + 1), [])

    def bounds(self, size: torch.SymInt) -> tuple[int, float]:
        """The least and the largest value of a dynamic size in the program: torch's own ranges begin at 2."""
        known = bound_sympy(size.node.expr, {**size.node.shape_env.var_to_range, **self.ranges})
        return int(known.lower), float(known.upper)

    def may_run_with_none(self, size: torch.SymInt) -> bool:
        """Whether a dynamic size may be 0 in a run."""
        return str(size) not in self.without_run and self.bounds(size)[0] <= 0

    def sizes_but_last(self, value: ir.Value, last: int) -> ir.Value:
        """The sizes of `value`, but of the last dim `last`."""
        return self.op("Concat", self.op("Shape", value, start=0, end=-1), self.ints([last]), axis=0)

    # ---- operators -------------------------------------------------------------------------------

    def op(self, op_type: str, *inputs: ir.Value | None, domain: str = "", **attributes: object) -> ir.Value:
        """Add an operator with one result. Attributes that are None are left out."""
        return self.ops(op_type, 1, *inputs, domain=domain, **attributes)[0]

    def ops(
        self, op_type: str, results: int, *inputs: ir.Value | None, domain: str = "", **attributes: object
    ) -> Sequence[ir.Value]:
        """Add an operator with several results."""
        # optional inputs at the end are left out, those between are empty
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        known = {name: value for name, value in attributes.items() if value is not None}
        converted = [ir.convenience.convert_attribute(*item) for item in known.items()]  # type: ignore[arg-type]
        node = ir.Node(domain, op_type, inputs, converted, num_outputs=results)
        for index, output in enumerate(node.outputs):
            output.name = f"{op_type}_{self._count}_{index}"
        self._count += 1
        self.nodes.append(node)
        return node.outputs

    def choose(
        self, condition: ir.Value, then: Callable[[], Sequence[ir.Value]], otherwise: Callable[[], Sequence[ir.Value]]
    ) -> Sequence[ir.Value]:
        """The values that `then` makes where the bool scalar `condition` is true at run time, else `otherwise`'s.

        Only the operators of the chosen branch run.
        """
        then_body, else_body = self.subgraph(then, ()), self.subgraph(otherwise, ())
        return self.ops("If", len(then_body.outputs), condition, then_branch=then_body, else_branch=else_body)

    def input(self, name: str, dtype: torch.dtype, shape: Sequence[Dim]) -> ir.Value:
        """An input for a `subgraph`; `name` need not be unique."""
        self._count += 1
        tensor_type = ir.TensorType(ONNX_TYPES[dtype])
        value = ir.Value(name=f"{name}_{self._count}", shape=ir.Shape(in_words(shape)), type=tensor_type)
        return self.record(value, shape)

    def subgraph(self, make: Callable[[], Sequence[ir.Value]], inputs: Sequence[ir.Value]) -> ir.Graph:
        """A body of If, Loop or Scan: the operators that `make` adds, which may read outer values, and its results."""
        (outside, self.nodes), (was_in_body, self.is_in_body) = (self.nodes, []), (self.is_in_body, True)
        results = [self.op("Identity", value) for value in make()]  # an output of a body is no outer value
        (inside, self.nodes), self.is_in_body = (self.nodes, outside), was_in_body
        self._count += 1
        return ir.Graph(inputs, results, nodes=_needed(inside, results), name=f"body_{self._count}")

    def total(self, values: Sequence[ir.Value]) -> ir.Value:
        """The sum of one or more values."""
        total = values[0]
        for value in values[1:]:
            total = self.op("Add", total, value)
        return total

    def cast(self, value: ir.Value, dtype: torch.dtype) -> ir.Value:
        """`value` as `dtype`."""
        if dtype == torch.bool and not self.target.has("Cast", torch.bool):
            number = self.cast(value, torch.float32)
            return self.op("Not", self.op("Equal", number, self.tensor(0.0, torch.float32)))
        return self.op("Cast", value, to=int(ONNX_TYPES[dtype]))

    def reshape(self, value: ir.Value, shape: Sequence[Dim], sizes: Callable[[], ir.Value] | None = None) -> ir.Value:
        """`value` in `shape`; a reshape of a reshape becomes one, and a reshape to the same shape is left out.

        Dynamic dims stand as -1 (one of them) or 0 ("as in the source"); where that is not enough, `sizes` computes the
        shape.
        """
        source, target = _input_of(value, "Reshape") or value, in_words(shape)
        if self._shapes.get(source) == target:
            return source
        # two dynamic dims that a reshape joined cannot be told from its source: the value between the reshapes tells
        for taken in dict.fromkeys((source, value)):
            written = _written(target, self._shapes.get(taken))
            if written.count(-1) <= 1:
                return self.record(self.op("Reshape", taken, self.ints(written)), shape)
        assert sizes is not None, f"reshape to {shape}"
        return self.record(self.op("Reshape", source, sizes()), shape)

    def transpose(self, value: ir.Value, permutation: Sequence[int]) -> ir.Value:
        """`value` with permuted dims; a transpose of a transpose becomes one, or none."""
        source = _input_of(value, "Transpose")
        if source is not None:
            producer = value.producer()
            assert producer is not None
            first = producer.attributes["perm"].as_ints()
            value, permutation = source, [first[dim] for dim in permutation]
        if list(permutation) == sorted(permutation):
            return value
        result = self.op("Transpose", value, perm=list(permutation))
        before = self._shapes.get(value)
        return result if before is None else self.record(result, [before[dim] for dim in permutation])

    def record(self, value: ir.Value, shape: Sequence[Dim]) -> ir.Value:
        """Note the shape of `value`, so that reshapes of it can be simplified; returns it."""
        self._shapes[value] = in_words(shape)
        return value

    @contextmanager
    def on_behalf_of(self, *calls: Node) -> Iterator[None]:
        """Note the debug handles of `calls` for the values of all operators that the body of the `with` adds, and for a
        value that was there and is theirs, too: of the quantizing behind an operator on integers. Calls within the
        bodies of a control flow keep their own."""
        before = len(self.nodes)
        yield
        handles = debug_handles(*calls)
        for node in nodes_within(self.nodes[before:]):
            for value in node.outputs:
                # not over those of calls within a body, which were converted first
                self.debug_handles.setdefault(value, handles)
        result = getattr(self.integers.get(calls[0]), "value", None) or self.values.get(calls[0])
        if isinstance(result, ir.Value) and result in self.debug_handles:
            self.debug_handles[result] = tuple(dict.fromkeys((*self.debug_handles[result], *handles)))

    @contextmanager
    def standing_for(self, values: Mapping[Node, ir.Value]) -> Iterator[None]:
        """Within the `with`, the nodes have these values."""
        before = {node: self.values[node] for node in values}
        self.values.update(values)
        try:
            yield
        finally:
            self.values.update(before)

    # ---- the result ------------------------------------------------------------------------------

    def model(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Model:
        """The finished model, without operators that its outputs do not need."""
        nodes = self.finished(_needed(self.nodes, outputs), outputs)
        used = {id(value) for node in nodes for value in _read(node)} | {id(value) for value in outputs}
        weights = [value for value in self.initializers.values() if id(value) in used]
        # older engines and viewers can open all other graphs
        later = any(node.op_type in _OF_ATTENTION for node in nodes_within(nodes))
        graph = ir.Graph(
            [*inputs, *self._external],
            outputs,
            nodes=nodes,
            initializers=weights,
            opset_imports={
                "": OPSET_OF_ATTENTION if later else self.target.opset,
                **{node.domain: 1 for node in nodes_within(nodes) if node.domain},
            },
            name="delegate",
        )
        return ir.Model(graph, ir_version=self.target.ir_version, producer_name=self.target.producer)

    def _initializer(self, name: str, content: NDArray[Any] | Deferred) -> ir.Value:
        assert name not in self.initializers, name
        self.initializers[name] = value = initializer(name, content)
        assert value.shape is not None
        return self.record(value, value.shape.numpy())


def array_of(number: Scalar, dtype: torch.dtype) -> NDArray[Any]:
    """`number` in `dtype`, without dims, as torch casts it: an integer wraps, and a float that the integer dtype does
    not hold depends on the CPU."""
    return as_array(torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None).to(dtype))


def initializer(name: str, content: NDArray[Any] | ir.PackedTensor[Any] | Deferred) -> ir.Value:
    """A constant of a graph, over the memory of an array, or made when it is read."""
    tensor = content if isinstance(content, ir.PackedTensor | Deferred) else ir.Tensor(content, name=name)
    return ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)


def _written(shape: Sequence[Dim], before: Sequence[Dim] | None) -> list[int]:
    """A Reshape's target: -1 for a dynamic dim; of several, 0 for those that stand where the source has them."""
    written = [dim if isinstance(dim, int) else -1 for dim in shape]
    if written.count(-1) <= 1 or before is None:
        return written
    same = [i < len(before) and before[i] == dim for i, dim in enumerate(shape)]
    return [0 if w == -1 and s else w for w, s in zip(written, same, strict=True)]


def _input_of(value: ir.Value, op_type: str) -> ir.Value | None:
    producer = value.producer()
    return producer.inputs[0] if producer is not None and producer.op_type == op_type else None


def _needed(nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> list[ir.Node]:
    needed = {id(value) for value in outputs}
    kept = []
    for node in reversed(nodes):
        if any(id(output) in needed for output in node.outputs):
            kept.append(node)
            needed.update(id(value) for value in _read(node))
    return kept[::-1]


def _read(node: ir.Node) -> Iterator[ir.Value | None]:
    """The values that `node` reads, in its branches too."""
    for inner in nodes_within([node]):
        yield from inner.inputs
