"""Converted models' attentions to a cache: query, key and value from one product, as the operator takes them too.

    q, k, v = MatMul(x, a), MatMul(x, b), MatMul(x, c)         qkv = MatMul(x, [a b c])
    y = GroupQueryAttention(q, k, v, …)                        y = GroupQueryAttention(qkv, None, None, …)

For one token that saves two products to share out among threads, and to round `x` for: 2 to 8 % of the time of a small
decoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import onnx_ir as ir

from delegraph_cpu.aot.compiled.beside import key_of
from delegraph_cpu.aot.compiled.in_place import ATTENTION
from delegraph_cpu.aot.convert import CpuModel
from delegraph_cpu.blob import bytes_of
from delegraph_onnx.deferred import Deferred
from delegraph_onnx.graph_builder import initializer
from delegraph_onnx.ir_values import producer_of, readers_of

__all__ = ["with_joined_projections"]

PRODUCTS: Final[Mapping[str, int]] = {"MatMul": -1, "DynamicQuantizeMatMul": -1, "MatMulNBits": 0}
"""Operators of an input, a weight and perhaps more constants -> the dim of the features in these constants."""
SUM: Final = "Add"
"""The sum of a product and its bias, or of the products of the halves of a weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The value in the place of query, key and value, or of operands of theirs: a constant that is joined along `dim`,
    or the result of a node like each of theirs, whose `inputs` are joined, or the same for all three."""

    three: tuple[ir.Value, ...]
    dim: int
    inputs: tuple[Joined | ir.Value | None, ...] = ()

    @property
    def name(self) -> str:
        """The name of the new value."""
        return "+".join(str(value.name) for value in self.three)

    def parts(self) -> Iterator[Joined]:
        """Itself, behind all values that it is computed from."""
        for operand in self.inputs:
            if isinstance(operand, Joined):
                yield from operand.parts()
        yield self

    def weights(self) -> Iterator[ir.Value]:
        """The three weights of each product."""
        for part in self.parts():
            if part.inputs and producer_of(part.three[0]).op_type in PRODUCTS:
                weight = part.inputs[1]
                assert isinstance(weight, Joined)
                yield from weight.three


def with_joined_projections(converted: Sequence[CpuModel]) -> list[CpuModel]:
    """The models with the projections of all attentions joined, unless the file would then hold a weight twice: one
    that another node reads by itself, in the same model or in one that is compiled with it. Edits their graphs."""
    candidates = [_joinable(model) for model in converted]
    if not any(candidates):
        return list(converted)
    key = _keys()
    weights = [weight for projections in candidates for each in projections.values() for weight in each.weights()]
    sizes = {_constant(weight).nbytes for weight in weights}  # others cannot be equal: most need no key
    uses = Counter[str]()
    for model in converted:
        for value in model.model.graph.initializers.values():
            if len(_constant(value).shape) > 1 and _constant(value).nbytes in sizes:
                uses[key(value)] += len(readers_of(value))
    # weights that are unpacked at load are in the file as codes
    uses.update(key_of(bytes_of(codes.packed)) for model in converted for codes in model.codes.values())
    joined = Counter(map(key, weights))
    chosen = [
        {node: each for node, each in model.items() if all(joined[key(w)] == uses[key(w)] for w in each.weights())}
        for model in candidates
    ]
    return [_with(projections, model) for projections, model in zip(chosen, converted, strict=True)]


def _keys() -> Callable[[ir.Value], str]:
    """Constant -> the key of its bytes, as the model has them; those of one tensor are read once."""
    known = dict[Hashable, str]()

    def key(value: ir.Value) -> str:
        tensor = _constant(value)
        identity = tensor.identity if isinstance(tensor, Deferred) else None
        place = id(tensor) if identity is None else identity
        if place not in known:
            array = tensor.read() if isinstance(tensor, Deferred) else tensor.numpy()
            known[place] = key_of(bytes_of(np.ascontiguousarray(array)))
        return known[place]

    return key


def _constant(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return value.const_value


# ---- which are alike ----------------------------------------------------------------------------------------------


def _joinable(converted: CpuModel) -> dict[ir.Node, Joined]:
    """Attention -> its projections, where these can be joined."""
    joinable = {}
    for node in converted.model.graph:
        if node.op_type == ATTENTION:
            projections = [value for value in node.inputs[:3] if value is not None]
            joined = _alike(projections, _features(node), -1, converted.codes) if len(projections) > 1 else None
            if joined is not None and joined.inputs:
                joinable[node] = joined
    return joinable


def _features(attention: ir.Node) -> list[int]:
    """The numbers of features of query, key and value."""
    buffer = attention.inputs[3]
    assert buffer is not None and buffer.shape is not None
    size = buffer.shape.numpy()[-1]
    return [size * attention.attributes[of].as_int() for of in ("num_heads", "kv_num_heads", "kv_num_heads")]


def _alike(three: Sequence[ir.Value], features: Sequence[int], dim: int, codes: Container[str]) -> Joined | None:
    """`three`, with so many features along `dim`, as one constant or the result of one node, or None. Weights that are
    stored as `codes` stay as they are."""
    if all(value.const_value is not None for value in three):
        return Joined(tuple(three), dim) if _divide(three, features, dim, codes) else None
    # another reader would need the projection by itself
    alone = [value for value in three if len(readers_of(value)) == 1 and not value.is_graph_output()]
    nodes = [node for value in alone if (node := value.producer()) is not None]
    if len(nodes) < len(three) or any(_kind(node) != _kind(nodes[0]) for node in nodes):
        return None
    op_type = nodes[0].op_type
    if op_type not in PRODUCTS and op_type != SUM:
        return None
    # products share their first input, and their weights are joined; of a sum all operands are joined
    dim, shared = (PRODUCTS[op_type], 1) if op_type in PRODUCTS else (dim, 0)
    if any(node.inputs[:shared] != nodes[0].inputs[:shared] for node in nodes):
        return None
    inputs: list[Joined | ir.Value | None] = list(nodes[0].inputs[:shared])
    for operands in list(zip(*(node.inputs for node in nodes), strict=True))[shared:]:
        values = [value for value in operands if value is not None]
        joined = _alike(values, features, dim, codes) if values else None
        if values and joined is None:
            return None
        inputs.append(joined)
    return Joined(tuple(three), dim, tuple(inputs))


def _divide(three: Sequence[ir.Value], features: Sequence[int], dim: int, codes: Container[str]) -> bool:
    """Whether each of these constants has as many elements for a feature, and none is for all of them."""
    constants = [(_constant(value).dtype, _constant(value).shape.numpy()) for value in three]
    if not all(shape for _, shape in constants) or any(value.name in codes for value in three):
        return False
    elsewhere = {(dtype, len(shape), np.delete(shape, dim).tobytes()) for dtype, shape in constants}
    shares = {divmod(shape[dim], count) for (_, shape), count in zip(constants, features, strict=True)}
    return len(elsewhere) == 1 and len(shares) == 1 and shares.pop()[1] == 0


def _kind(node: ir.Node) -> tuple[object, ...]:
    """The properties that nodes must share to be joined."""
    attributes = {name: attribute.value for name, attribute in node.attributes.items() if name != _FEATURES}
    return node.domain, node.op_type, attributes, [value is None for value in node.inputs], len(node.outputs)


_FEATURES: Final = "N"
"""An attribute of MatMulNBits."""


# ---- joining them -------------------------------------------------------------------------------------------------


def _with(projections: Mapping[ir.Node, Joined], converted: CpuModel) -> CpuModel:
    graph, handles = converted.model.graph, dict(converted.debug_handles)
    for attention, joined in projections.items():
        value = _added(joined, attention)
        for place, replacement in enumerate((value, None, None)):
            attention.replace_input_with(place, replacement)
        for part in joined.parts():
            if part.inputs:
                graph.remove([producer_of(old) for old in part.three])
                handles[part.name] = tuple(sorted({h for old in part.three for h in handles.get(str(old.name), ())}))
    for name, weight in list(graph.initializers.items()):
        if not readers_of(weight):
            del graph.initializers[name]
    return replace(converted, debug_handles=handles)


def _added(joined: Joined, attention: ir.Node) -> ir.Value:
    """The value of `joined`, by constants and nodes that are added to the graph of `attention`."""
    graph = attention.graph
    assert isinstance(graph, ir.Graph)
    if not joined.inputs:
        if joined.name not in graph.initializers:
            content = Deferred.joined(joined.name, list(map(_constant, joined.three)), joined.dim)
            graph.initializers[joined.name] = initializer(joined.name, content)
        return graph.initializers[joined.name]
    like = producer_of(joined.three[0])
    inputs = [_added(source, attention) if isinstance(source, Joined) else source for source in joined.inputs]
    attributes = {**like.attributes}
    if _FEATURES in attributes:
        attributes[_FEATURES] = ir.AttrInt64(_FEATURES, sum(_features(attention)))
    node = ir.Node(like.domain, like.op_type, inputs, [*attributes.values()])
    node.outputs[0].name = joined.name
    graph.insert_before(attention, node)
    return node.outputs[0]
