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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature, schema_arguments
from delegraph.aot.authoring import ANY, Constants, captured, matches, op
from delegraph_cpu.aot.fusions.attention_parts import Attention, attention_of
from delegraph_cpu.aot.fusions.masks import Mask, mask_of
from delegraph_cpu.aot.fusions.rotary import Rotation, rotation_of
from delegraph_cpu.aot.graph import CONTRIB
from delegraph_onnx.converters.attention import joined_heads, parted_heads
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.graph_patterns import slice_of, sliced_from, with_repeated_heads
from delegraph_onnx.node_facts import are_known, outer_dtype_of, rank_of, same_sizes, shape_of
from delegraph_onnx.positions import Positions, positions_of

__all__ = ["CachedAttention", "cached_attentions"]


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """The call `put` writes the rows `new` along dim 2 of a cache: where the tensor `places` says, or from a place on,
    if there is none. `begin` is the first place."""

    put: Node
    new: Node
    places: Node | None
    begin: Positions

    @classmethod
    def of(cls, put: Node, constants: Mapping[Node, torch.Tensor]) -> _Write | None:
        """None: it writes something else, or where is not known."""
        if put.target == aten("index_put"):
            _, indices, new, accumulate = schema_arguments(put)
            if len(indices) != 3 or indices[0] is not None or indices[1] is not None or accumulate:
                return None
            return cls._at(put, new, indices[2], constants)
        if put.target == aten("index_copy"):
            _, dim, places, new = schema_arguments(put)
            return cls._at(put, new, places, constants) if dim in (2, -2) else None
        _, new, dim, start, _, step = schema_arguments(put)
        in_a_row = dim in (2, -2) and step == 1 and isinstance(start, Node)
        return cls(put, new, None, Positions(start=start, dim=-1)) if in_a_row else None

    @classmethod
    def _at(cls, put: Node, new: Node, places: Node, constants: Mapping[Node, torch.Tensor]) -> _Write | None:
        begin = positions_of(places, constants)
        counts_up = begin is not None and begin.dim in (None, -1) and rank_of(places) == 1
        return cls(put, new, places, begin) if begin is not None and counts_up else None

    def count(self, g: GraphBuilder) -> ir.Value:
        """How many rows there are."""
        if self.places is not None:
            return g.size(g.value(self.places), 0)  # the same for all layers: computed once
        return g.size(g.value(self.new), 2)


@dataclass(frozen=True, slots=True, eq=False)
class CachedAttention:
    """One occurrence: the attention, both writes, what of the graph it takes the place of, and what it needs.

    `rotations` are those of query and key, or None if they come as they are.
    """

    attention: Attention
    keys: _Write
    values: _Write
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
        puts = self.keys.put, self.values.put
        inputs: list[Node] = [query, self.keys.new, self.values.new]
        tables: list[ir.Value | None] = [None, None]
        if self.rotations is not None:
            inputs[:2] = [rotation.source for rotation in self.rotations]
            tables = [g.constant(table) for table in (self.rotations[0].cos, self.rotations[0].sin)]
        packed = _packed_projections(inputs)
        three = [g.value(packed), None, None] if packed is not None else [joined_heads(g, node) for node in inputs]
        batch, heads, length, size = shape_of(query)
        filled = self._filled(g, length)
        last = g.op("Sub", filled, g.constant(np.array(1, np.int32)))
        attended, keys, values = g.ops(
            "GroupQueryAttention",
            3,
            *three,
            *(g.value(put.all_input_nodes[0]) for put in puts),
            g.op("Expand", last, g.ints([int(batch)])),
            filled,
            *tables,
            None,
            None,
            None if sinks is None else g.value(sinks),
            domain=CONTRIB,
            num_heads=int(heads),
            kv_num_heads=int(shape_of(self.keys.put)[1]),
            scale=self.attention.scale,
            softcap=self.attention.softcap,
            do_rotary=int(self.rotations is not None),
            rotary_interleaved=int(self.rotations is not None and self.rotations[0].interleaved),
            local_window_size=self.mask.window,
        )
        g.values[self.root] = parted_heads(g, attended, [batch, heads, length, size])
        for put, value in zip(puts, (keys, values), strict=True):
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
            behind = self.keys.count(g)
            behind = g.op("Add", behind, g.constant(np.array(rows.offset))) if rows.offset else behind
        beyond = int(shape_of(self.keys.put)[2]) + 1
        filled = g.op("Add", g.reshape(g.tensor(rows.start, torch.int64), []), behind)
        return g.cast(g.op("Clip", filled, *map(g.constant, np.array([0, beyond]))), torch.int32)


def cached_attentions(graph: Graph, signature: ResolvedSignature) -> Iterator[CachedAttention]:
    """The occurrences in the graph of a partition."""
    constants = Constants.of(signature)
    written = {write_back.source: write_back.target for write_back in signature.write_backs}
    for node in graph.nodes:
        attention = attention_of(node, constants)
        cached = None if attention is None else _match(attention, written, constants)
        if cached is not None:
            yield cached


def _match(attention: Attention, written: Mapping[Node, Node], constants: Constants) -> CachedAttention | None:
    query, mask = attention.query, attention.mask
    if outer_dtype_of(attention.root) != torch.float32 or rank_of(query) != 4 or not attention.scale:
        return None  # onnxruntime takes a scale of 0 for none
    sources = zip((attention.key, attention.value), attention.readers, strict=True)
    keys, values = (_put_behind(source, reader, constants.tensors) for source, reader in sources)
    if keys is None or values is None or not (_is_cache(keys[0], written) and _is_cache(values[0], written)):
        return None
    seen = mask_of(mask, constants)
    if seen is None or not _fits(query, keys[0], mask) or not _fits(query, values[0], mask):
        return None
    puts = [put for put, _ in (keys, values) if put.begin.start is not None and put.begin.begins_like(seen.rows)]
    if len(puts) < 2:
        return None
    replaced = frozenset([keys[0].put, values[0].put, *keys[1], *values[1], *attention.between])
    rotations = _rotations(query, keys[0], seen.rows, constants.tensors)
    return CachedAttention(attention, keys[0], values[0], replaced, seen, rotations)


def _rotations(
    query: Node, keys: _Write, rows: Positions, constants: Mapping[Node, torch.Tensor]
) -> tuple[Rotation, Rotation] | None:
    """Those of the query and the key, where both are rotated by the same angles, and heads have a size for it."""
    count = int(shape_of(keys.put)[2])
    turned = rotation_of(query, rows, count, constants)
    turned_key = None if turned is None else rotation_of(keys.new, rows, count, constants)
    if turned is None or turned_key is None or not turned.is_like(turned_key):
        return None
    sizes = int(shape_of(query)[-1]), 2 * turned.cos.shape[1]
    return None if any(size % _ROTATED_SIZE for size in sizes) else (turned, turned_key)


_WRITES: Final = frozenset({aten("index_put"), aten("index_copy"), aten("slice_scatter")})
"""Operators that put rows into a cache: at places, or from one to another."""


_ROTATED_SIZE = 16
"""Where the operator rotates, the sizes of a head and of the rotated part are multiples of this; else of 8."""


def _put_behind(
    node: Node, reader: Node, constants: Mapping[Node, torch.Tensor]
) -> tuple[_Write, frozenset[Node]] | None:
    """The write whose result `node` is, its heads repeated, and the nodes between, which nobody but `reader` reads."""
    for source, between in with_repeated_heads(node):
        inside = {reader, *between}
        if source.target in _WRITES and all(
            inside.issuperset(user for user in each.users if user.op != "output" or each is not source)
            for each in (source, *between)
        ):
            put = _Write.of(source, constants)
            return None if put is None else (put, between)
    return None


def _is_cache(write: _Write, written: Mapping[Node, Node]) -> bool:
    """Whether rows are written into a state, whose new value it is, and which nobody else reads."""
    put, cache = write.put, write.put.args[0]
    return (
        isinstance(cache, Node)
        and written.get(put) is cache
        and list(cache.users) == [put]
        and rank_of(cache) == 4
        and outer_dtype_of(cache) == torch.float32
    )


def _fits(query: Node, write: _Write, mask: Node) -> bool:
    """Whether the shapes are those that the operator takes, and reads as they are meant here."""
    cache, new = shape_of(write.put), shape_of(write.new)
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


# ---- query, key and value that are slices of one product, as Phi-3 and GPT-2 have them ----------------------------


def _packed_projections(three: Sequence[Node]) -> Node | None:
    """The product that `three` are made of, which the operator takes whole:

        q, k, v = qkv[…, :n], qkv[…, n:m], qkv[…, m:]    or    split(qkv, [n, m - n, …], -1)

    What `three`, of shape (batch, heads, rows, size), are one behind the other; None: they are not of one."""
    slices = [_features(heads) for heads in three]
    source = sliced_from(slices[0])
    if source is None or rank_of(source) != 3 or not isinstance(shape_of(source)[-1], int):
        return None
    end = 0
    for sliced in slices:
        part = None if sliced is None else slice_of(sliced, source)
        if part is None or part[0] != end:
            return None
        end = part[1]
    return source if end == shape_of(source)[-1] else None


_FEATURES: Final = op(aten("view_copy"), *captured("features"), ANY)
_HEADS: Final = op(aten("permute_copy"), _FEATURES, [0, 2, 1, 3])


def _features(heads: Node) -> Node | None:
    """The node, of shape (batch, rows, heads * size), of which `heads` are the parts."""
    for parted in matches(_HEADS, heads):
        features: Node = parted["features"]
        batch, rows, count, size = shape_of(parted.calls[_FEATURES])
        if same_sizes(shape_of(features), (batch, rows, count * size)):
            return features
    return None
