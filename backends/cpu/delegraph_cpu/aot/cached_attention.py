"""A partition's graph -> where rows are put into a cache and all of it is attended to: onnxruntime's one operator.

    keys'   = index_put(keys, [None, None, places], k)             k and q rotated by their places, or not;
    values' = index_put(values, [None, None, places], v)           or slice_scatter
    y       = sdpa(q, repeated(keys'), repeated(values'), mask)    each row sees what is up to its place; or written out

    y, keys', values' = GroupQueryAttention(q, k, v, keys, values, last place, places so far, cos, sin)

The operator reads only what is filled of the cache, rotates, and repeats no heads; with one query to a cache of 2048
places, of which 5 are filled, it takes a thirtieth of the time. It writes the new rows in place, and leaves the rest of
its results undefined where they are not the cache itself: both caches have to be states that nobody else reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature, schema_arguments
from delegraph.aot.authoring import Constants
from delegraph_cpu.aot.attention_parts import Attention, attention_of
from delegraph_cpu.aot.graph import CONTRIB
from delegraph_cpu.aot.masks import Mask, mask_of
from delegraph_cpu.aot.packed_projections import packed_projections
from delegraph_cpu.aot.rotary import Rotation, rotation_of
from delegraph_onnx.converters.attention import joined_heads
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import are_known, outer_dtype_of, rank_of, same_sizes, shape_of
from delegraph_onnx.positions import Positions, positions_of
from delegraph_onnx.repeated_heads import REPEATING, repeats_heads

__all__ = ["CachedAttention", "cached_attentions"]


@dataclass(frozen=True, slots=True, eq=False)
class CachedAttention:
    """One occurrence: the attention, both writes, what of the graph it takes the place of, and what it needs.

    `rotations` are those of query and key, or None if they come as they are.
    """

    attention: Attention
    put_keys: Node
    put_values: Node
    replaced: frozenset[Node]
    mask: Mask
    rotations: tuple[Rotation, Rotation] | None

    @property
    def root(self) -> Node:
        """The call in whose place it is converted."""
        return self.attention.root

    def convert(self, g: GraphBuilder) -> None:
        """Add the operator: the values of the attention and of both writes."""
        query, sinks = self.attention.query, self.attention.sinks
        new_key, new_value = _new_rows(self.put_keys), _new_rows(self.put_values)
        inputs: list[Node] = [query, new_key, new_value]
        tables: list[ir.Value | None] = [None, None]
        if self.rotations is not None:
            inputs[:2] = [rotation.source for rotation in self.rotations]
            tables = [g.constant(table) for table in (self.rotations[0].cos, self.rotations[0].sin)]
        packed = packed_projections(inputs)
        three = [g.value(packed), None, None] if packed is not None else [joined_heads(g, node) for node in inputs]
        batch, heads, length, size = shape_of(query)
        filled = self._filled(g, length)
        last = g.op("Sub", filled, g.constant(np.array(1, np.int32)))
        attended, keys, values = g.ops(
            "GroupQueryAttention",
            3,
            *three,
            *(g.value(put.all_input_nodes[0]) for put in (self.put_keys, self.put_values)),
            g.op("Expand", last, g.ints([int(batch)])),
            filled,
            *tables,
            None,
            None,
            None if sinks is None else g.value(sinks),
            domain=CONTRIB,
            num_heads=int(heads),
            kv_num_heads=int(shape_of(self.put_keys)[1]),
            scale=self.attention.scale,
            softcap=self.attention.softcap,
            do_rotary=int(self.rotations is not None),
            rotary_interleaved=int(self.rotations is not None and self.rotations[0].interleaved),
            local_window_size=self.mask.window,
        )
        g.record(attended, [batch, length, int(heads) * int(size)])
        parted = g.reshape(attended, [batch, length, heads, size])
        g.values[self.root] = g.record(g.transpose(parted, [0, 2, 1, 3]), shape_of(self.root))
        for put, value in ((self.put_keys, keys), (self.put_values, values)):
            g.values[put] = g.record(value, shape_of(put))

    def _filled(self, g: GraphBuilder, length: object) -> ir.Value:
        """How many places of the cache are filled behind this run, an int32 scalar: the first one's, and the rows.

        What is none of its places stays none, which the operator refuses: in 32 bits 2^32 is the first one.
        """
        rows = self.mask.rows
        assert rows.start is not None
        if isinstance(length, int):
            behind = g.constant(np.array(rows.offset + length))
        else:
            behind = _count(g, self.put_keys)
            behind = g.op("Add", behind, g.constant(np.array(rows.offset))) if rows.offset else behind
        beyond = int(shape_of(self.put_keys)[2]) + 1
        filled = g.op("Add", g.reshape(g.tensor(rows.start, torch.int64), []), behind)
        return g.cast(g.op("Clip", filled, *map(g.constant, np.array([0, beyond]))), torch.int32)


def cached_attentions(graph: Graph, signature: ResolvedSignature) -> Iterator[CachedAttention]:
    """The occurrences in the graph of a partition."""
    constants = Constants.of(signature)
    written = {write_back.source: write_back.target for write_back in signature.write_backs}
    for node in graph.nodes:
        attention = attention_of(node, constants)
        found = None if attention is None else _match(attention, written, constants)
        if found is not None:
            yield found


def _match(attention: Attention, written: Mapping[Node, Node], constants: Constants) -> CachedAttention | None:
    query, mask = attention.query, attention.mask
    if outer_dtype_of(attention.root) != torch.float32 or rank_of(query) != 4 or not attention.scale:
        return None  # onnxruntime takes a scale of 0 for none
    keys, values = map(_put_behind, (attention.key, attention.value), attention.readers)
    if keys is None or values is None or not (_is_cache(keys[0], written) and _is_cache(values[0], written)):
        return None
    put_keys, put_values = keys[0], values[0]
    seen = mask_of(mask, constants)
    if seen is None or not _fits(query, put_keys, mask) or not _fits(query, put_values, mask):
        return None
    for put in (put_keys, put_values):
        places = _first_place(put, constants.tensors)
        if places is None or places.start is None or not places.begins_like(seen.rows):
            return None
    replaced = frozenset([put_keys, put_values, *keys[1], *values[1], *attention.between])
    rotations = _rotations(query, put_keys, seen.rows, constants.tensors)
    return CachedAttention(attention, put_keys, put_values, replaced, seen, rotations)


def _rotations(
    query: Node, put_keys: Node, rows: Positions, constants: Mapping[Node, torch.Tensor]
) -> tuple[Rotation, Rotation] | None:
    """Those of the query and the key, where both are rotated by the same angles, and heads have a size for it."""
    count = int(shape_of(put_keys)[2])
    turned = rotation_of(query, rows, count, constants)
    turned_key = None if turned is None else rotation_of(_new_rows(put_keys), rows, count, constants)
    if turned is None or turned_key is None or not turned.is_like(turned_key):
        return None
    sizes = int(shape_of(query)[-1]), 2 * turned.cos.shape[1]
    return None if any(size % _ROTATED_SIZE for size in sizes) else (turned, turned_key)


_AT_PLACES: Final[dict[object, int]] = {aten("index_put"): 1, aten("index_copy"): 2}
"""Operators that put rows into a cache at places, and which argument says the places."""
_WRITES: Final = frozenset({*_AT_PLACES, aten("slice_scatter")})
"""Operators that put rows into a cache: at places, or from one to another."""


def _new_rows(put: Node) -> Node:
    """What `put` writes."""
    new = put.args[_AT_PLACES.get(put.target, 0) + 1]
    assert isinstance(new, Node)
    return new


def _places(put: Node) -> Node:
    """Where `put` writes rows, if it is told by a tensor."""
    said = schema_arguments(put)[_AT_PLACES[put.target]]
    places = said[2] if isinstance(said, list | tuple) else said
    assert isinstance(places, Node)
    return places


def _count(g: GraphBuilder, put: Node) -> ir.Value:
    """How many rows `put` writes."""
    if put.target in _AT_PLACES:
        return g.size(g.value(_places(put)), 0)  # the same for all layers: computed once
    return g.size(g.value(_new_rows(put)), 2)


def _first_place(put: Node, constants: Mapping[Node, torch.Tensor]) -> Positions | None:
    """The places of the rows that `put` writes, which count up, or the place of its only row; None if that is not
    known."""
    if put.target in _AT_PLACES:
        places = positions_of(_places(put), constants)
        return places if places is not None and places.dim in (None, -1) and rank_of(_places(put)) == 1 else None
    start = schema_arguments(put)[3]
    return Positions(start=start, dim=-1) if isinstance(start, Node) else None


_ROTATED_SIZE = 16
"""What the size of a head, and of the part that is rotated, is a multiple of where the operator rotates; else of 8."""


def _put_behind(node: Node, reader: Node) -> tuple[Node, list[Node]] | None:
    """The write whose result `node` is, its heads repeated, and the nodes between, which nobody but `reader` reads."""
    between: list[Node] = []
    while node.op == "call_function" and node.target not in _WRITES:
        if node.target not in REPEATING or list(node.users) != [reader]:
            return None
        between.append(node)
        reader, node = node, node.args[0]  # type: ignore[assignment]
    if node.op != "call_function" or {user for user in node.users if user.op != "output"} != {reader}:
        return None
    return (node, between) if repeats_heads(between[::-1], node) else None


def _is_cache(put: Node, written: Mapping[Node, Node]) -> bool:
    """Whether `put` writes rows into a state, whose new value it is, and which nobody else reads."""
    cache = put.args[0]
    return (
        isinstance(cache, Node)
        and written.get(put) is cache
        and list(cache.users) == [put]
        and rank_of(cache) == 4
        and outer_dtype_of(cache) == torch.float32
        and _writes_rows(put)
    )


def _writes_rows(put: Node) -> bool:
    """Whether `put` replaces places of dim 2."""
    if put.target == aten("slice_scatter"):
        _, _, dim, _, _, step = schema_arguments(put)
        return dim in (2, -2) and step == 1
    if put.target == aten("index_copy"):
        return schema_arguments(put)[1] in (2, -2)
    _, indices, _, accumulate = schema_arguments(put)
    return len(indices) == 3 and indices[0] is None and indices[1] is None and not accumulate


def _fits(query: Node, put: Node, mask: Node) -> bool:
    """Whether the shapes are those that the operator takes, and reads as they are meant here."""
    cache, new = shape_of(put), shape_of(_new_rows(put))
    batch, heads, length, size = shape_of(query)
    known = are_known(*cache, batch, heads, size)
    return (
        known
        and same_sizes(new, (batch, cache[1], length, size))
        and (cache[0], cache[3]) == (batch, size)
        and int(heads) % int(cache[1]) == 0
        and int(size) % 8 == 0
        and (batch == 1 or length == 1)  # with more, the operator takes no cache that has something in it
        and same_sizes(shape_of(mask)[-2:], (length, cache[2]))
    )
