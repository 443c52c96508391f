"""Shapes: views as copies, joining and splitting, padding, flips, and copies between dtypes and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.operators.case import (
    ALL,
    COMMON,
    FLOATS,
    Case,
    by_dtype,
    call,
    channels_last,
    renamed_call,
    special,
    stand_in,
    tensor,
)

import delegraph.aot.edge.dim_order_ops  # noqa: F401  defines them

aten = torch.ops.aten
order = torch.ops.dim_order_ops
X = (2, 3, 4)


def views() -> Iterator[Case]:
    """Each view operator in each dtype with its first arguments, and in float32 with the others."""
    table: dict[str, tuple[Any, dict[str, tuple[Any, ...]]]] = {
        "view_copy.out": (
            aten.view_copy.default,
            {"flat": ([-1],), "other": ([4, -1, 2],), "ones": ([2, 1, 3, 4, 1],)},
        ),
        "permute_copy.out": (aten.permute_copy.default, {"": ([2, 0, 1],), "negative dims": ([-1, 0, -2],)}),
        "expand_copy.out": (
            aten.expand_copy.default,
            {"new dim": ([5, 2, 3, 4],), "-1": ([2, -1, -1, 4],)},
        ),
        "slice_copy.Tensor_out": (
            aten.slice_copy.Tensor,
            {
                "": (1, 1, 3),
                "step": (2, 0, 4, 2),
                "negative": (-1, -3, -1),
                "out of range": (1, -9, 2),
                "none": (0, 2, 1),
            },
        ),
        "select_copy.int_out": (aten.select_copy.int, {"": (1, 2), "negative": (-1, -4)}),
        "unsqueeze_copy.out": (aten.unsqueeze_copy.default, {"": (1,), "last": (-1,), "first": (0,)}),
        "narrow_copy.out": (aten.narrow_copy.default, {"": (1, 1, 2), "negative": (-1, -3, 2), "nothing": (0, 1, 0)}),
        "as_strided_copy.out": (
            aten.as_strided_copy.default,
            {"": ([3, 2], [1, 5], 2), "overlap": ([4, 3], [1, 1]), "broadcast": ([2, 3], [0, 2], 1)},
        ),
        "diagonal_copy.out": (
            aten.diagonal_copy.default,
            {"": (), "above": (1,), "below": (-1, 1, 2), "far": (9,), "dims": (0, -1, -3)},
        ),
        "unfold_copy.out": (aten.unfold_copy.default, {"": (2, 2, 1), "step": (1, 2, 2), "negative dim": (-1, 3, 1)}),
        "repeat.out": (aten.repeat.default, {"": ([1, 2, 1],), "new dim": ([3, 1, 2, 1],), "none": ([0, 1, 1],)}),
        "flip.out": (aten.flip.default, {"": ([1],), "two": ([0, -1],), "no dims": ([],)}),
        "roll.out": (aten.roll.default, {"": ([1], [2]), "two": ([1, -2], [0, -1]), "flat": ([5],), "far": ([9], [1])}),
        "tril.out": (aten.tril.default, {"": (), "above": (1,), "below": (-1,), "far": (-9,)}),
        "squeeze_copy.dim_out": (aten.squeeze_copy.dim, {}),
        "squeeze_copy.dims_out": (aten.squeeze_copy.dims, {}),
    }
    for name, (target, variants) in table.items():
        operator = f"aten::{name}"
        for position, (variant, arguments) in enumerate(variants.items()):
            if position == 0:
                yield from by_dtype(operator, target, ALL, lambda dtype, a=arguments: (tensor(*X, dtype=dtype), *a))
            else:
                yield call(operator, variant, target, tensor(*X), *arguments)
    for dtype in COMMON:
        yield call("aten::squeeze_copy.dim_out", dtype, aten.squeeze_copy.dim, tensor(2, 1, 3, dtype=dtype), 1)
        yield call("aten::squeeze_copy.dims_out", dtype, aten.squeeze_copy.dims, tensor(1, 2, 1, dtype=dtype), [0, 2])
    yield call("aten::squeeze_copy.dim_out", "negative", aten.squeeze_copy.dim, tensor(2, 3, 1), -1)
    yield call("aten::squeeze_copy.dims_out", "some", aten.squeeze_copy.dims, tensor(1, 2, 1), [-1, 1])
    yield call("aten::squeeze_copy.dims_out", "to 0-d", aten.squeeze_copy.dims, tensor(1, 1), [0, 1])
    yield call("aten::expand_copy.out", "0-d", aten.expand_copy.default, tensor(), [2, 3])
    yield call("aten::expand_copy.out", "column", aten.expand_copy.default, tensor(3, 1), [2, 3, 4])
    yield call("aten::view_copy.out", "to 0-d", aten.view_copy.default, tensor(1), [])
    yield call("aten::view_copy.out", "empty", aten.view_copy.default, tensor(0, 3), [3, 0])
    yield call("aten::unsqueeze_copy.out", "0-d", aten.unsqueeze_copy.default, tensor(), 0)
    yield call("aten::slice_copy.Tensor_out", "channels_last", aten.slice_copy.Tensor, channels_last(2, 3, 4, 2), 1, 1)
    yield call(
        "aten::permute_copy.out", "channels_last", aten.permute_copy.default, channels_last(2, 3, 4, 2), [0, 2, 3, 1]
    )
    yield call("aten::repeat.out", "0-d", aten.repeat.default, tensor(), [2, 2])
    yield call("aten::flip.out", "0-d", aten.flip.default, tensor(), [0])
    yield call("aten::flip.out", "empty", aten.flip.default, tensor(0, 2), [0])
    yield call("aten::roll.out", "empty", aten.roll.default, tensor(0, 2), [1], [0])
    yield call("aten::diagonal_copy.out", "square", aten.diagonal_copy.default, tensor(3, 3))
    yield call("aten::tril.out", "tall", aten.tril.default, tensor(4, 2))
    yield from _stand_ins()


def _stand_ins() -> Iterator[Case]:
    """Those that lowering turns into others (`permute_copy`) or leaves out, since they change nothing."""

    def copied(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args: function(*args).clone(memory_format=torch.contiguous_format)

    table: dict[str, tuple[str, Callable[..., torch.Tensor], dict[str, tuple[Any, ...]]]] = {
        "aten::t_copy.out": (
            "t(Tensor self) -> Tensor",
            copied(torch.t),
            {"": (tensor(2, 3),), "1-d": (tensor(3),), "0-d": (tensor(),)},
        ),
        "aten::transpose_copy.int_out": (
            "transpose(Tensor self, int dim0, int dim1) -> Tensor",
            copied(torch.transpose),
            {"": (tensor(*X), 0, 1), "negative": (tensor(*X), -1, 0), "same": (tensor(*X), 1, 1)},
        ),
        "aten::clone.out": (
            "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
            _clone,
            {"": (tensor(*X),), "0-d": (tensor(),), "channels_last": (channels_last(2, 3, 4, 2),)},
        ),
        "aten::alias_copy.out": (
            "alias(Tensor self) -> Tensor",
            torch.clone,
            {"": (tensor(*X),), "empty": (tensor(0),)},
        ),
        "aten::detach_copy.out": (
            "detach(Tensor self) -> Tensor",
            torch.clone,
            {"": (tensor(*X),), "0-d": (tensor(),)},
        ),
        "aten::lift_fresh_copy.out": (
            "lift(Tensor self) -> Tensor",
            torch.clone,
            {"": (tensor(*X),), "0-d": (tensor(),)},
        ),
    }
    for operator, (schema, body, variants) in table.items():
        target = stand_in(schema, body)
        for variant, arguments in variants.items():
            yield renamed_call(operator, f"float32 {variant}".strip(), target, *arguments)
        first = next(iter(variants.values()))
        for dtype in (d for d in ALL if d != "float32"):
            x = tensor(*first[0].shape, dtype=dtype)
            yield renamed_call(operator, dtype, target, x, *first[1:])


def _clone(x: torch.Tensor, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    return torch.clone(x)


def pieces() -> Iterator[Case]:
    """Joining and splitting."""
    for dtype in ALL:
        a, b = tensor(2, 3, dtype=dtype), tensor(4, 3, dtype=dtype)
        yield call("aten::cat.out", dtype, aten.cat.default, [a, b])
        yield call("aten::stack.out", dtype, aten.stack.default, [a, a])
        yield call("aten::split_copy.Tensor_out", dtype, aten.split_copy.Tensor, b, 3)
        yield call("aten::split_with_sizes_copy.out", dtype, aten.split_with_sizes_copy.default, b, [1, 3])
        yield call("aten::unbind_copy.int_out", dtype, aten.unbind_copy.int, b)
    a = tensor(2, 3)
    yield call("aten::cat.out", "dim -1", aten.cat.default, [a, tensor(2, 1), a], -1)
    yield call("aten::cat.out", "one", aten.cat.default, [a])
    yield call("aten::cat.out", "empty 1-d among them", aten.cat.default, [a, tensor(0), a])
    yield call("aten::cat.out", "no rows", aten.cat.default, [tensor(0, 3), a])
    yield call("aten::cat.out", "int32 and float32", aten.cat.default, [a.int(), a])
    yield call("aten::cat.out", "float16 and bool", aten.cat.default, [a.half(), a > 0])
    yield call(
        "aten::cat.out", "channels_last", aten.cat.default, [channels_last(2, 3, 4, 2), channels_last(2, 1, 4, 2)], 1
    )
    yield call("aten::stack.out", "dim -1", aten.stack.default, [a, a + 1], -1)
    yield call("aten::stack.out", "0-d", aten.stack.default, [tensor(), tensor(seed=1)])
    yield call("aten::stack.out", "int32 and float32", aten.stack.default, [a.int(), a], 1)
    yield call("aten::stack.out", "empty", aten.stack.default, [tensor(0), tensor(0)])
    yield call("aten::split_copy.Tensor_out", "dim -1", aten.split_copy.Tensor, tensor(2, 5), 2, -1)
    yield call("aten::split_copy.Tensor_out", "one piece", aten.split_copy.Tensor, a, 9)
    yield call("aten::split_with_sizes_copy.out", "dim -1", aten.split_with_sizes_copy.default, a, [1, 0, 2], -1)
    yield call("aten::unbind_copy.int_out", "dim -1", aten.unbind_copy.int, a, -1)


def padding() -> Iterator[Case]:
    table: dict[str, tuple[tuple[int, ...], dict[str, tuple[Any, ...]]]] = {
        "constant_pad_nd": (
            (2, 3, 4),
            {"": ([1, 2], 3), "two dims": ([1, 0, 2, 1], 1), "negative": ([-1, 2], 5), "0": ([1, 1],)},
        ),
        "reflection_pad1d": ((2, 3, 4), {"": ([1, 2],), "one side": ([3, 0],)}),
        "reflection_pad2d": ((1, 2, 3, 4), {"": ([1, 2, 2, 0],)}),
        "reflection_pad3d": ((1, 2, 3, 4, 3), {"": ([1, 2, 2, 0, 1, 1],)}),
        "replication_pad1d": ((2, 3, 4), {"": ([1, 2],), "far": ([6, 0],)}),
        "replication_pad2d": ((1, 2, 3, 4), {"": ([1, 2, 5, 0],)}),
        "replication_pad3d": ((1, 2, 3, 4, 3), {"": ([1, 2, 5, 0, 1, 1],)}),
    }
    for name, (shape, variants) in table.items():
        operator, target = f"aten::{name}.out", getattr(aten, name).default
        dtypes = ALL if name.startswith("constant") else FLOATS
        for position, (variant, arguments) in enumerate(variants.items()):
            if position == 0:
                yield from by_dtype(operator, target, dtypes, lambda d, s=shape, a=arguments: (tensor(*s, dtype=d), *a))
                if not name.startswith("constant"):
                    yield call(operator, "unbatched", target, tensor(*shape[1:]), *arguments)
            else:
                yield call(operator, variant, target, tensor(*shape), *arguments)
    yield call(
        "aten::constant_pad_nd.out",
        "float number in int64",
        aten.constant_pad_nd.default,
        tensor(3, dtype="int64"),
        [1, 1],
        2.7,
    )
    yield call("aten::constant_pad_nd.out", "empty", aten.constant_pad_nd.default, tensor(0), [1, 1], 2.0)
    yield call(
        "aten::constant_pad_nd.out",
        "channels_last",
        aten.constant_pad_nd.default,
        channels_last(1, 2, 3, 3),
        [1, 1, 0, 2],
        2.0,
    )
    for name in ("pixel_shuffle", "pixel_unshuffle"):
        operator, target = f"aten::{name}.out", getattr(aten, name).default
        shape = (2, 8, 2, 3) if name == "pixel_shuffle" else (2, 2, 4, 6)
        yield from by_dtype(operator, target, ALL, lambda d, s=shape: (tensor(*s, dtype=d), 2))
        yield call(operator, "unbatched", target, tensor(*shape[1:]), 2)
        yield call(operator, "channels_last", target, channels_last(*shape), 2)


def copies() -> Iterator[Case]:
    """Copies, conversions and layouts."""
    x = tensor(*X)
    for source in ALL:
        value = tensor(*X, dtype=source)
        for dtype in ("float32", "float16", "int64", "uint8", "bool"):
            if dtype != source:
                kind = getattr(torch, dtype)
                yield call(
                    "aten::_to_copy.out",
                    f"{source} to {dtype}",
                    aten._to_copy.default,
                    tensor(*X, dtype=source, low=0),
                    dtype=kind,
                )
        yield call("aten::copy.out", source, aten.copy.default, torch.zeros_like(value), value)
    yield call("aten::_to_copy.out", "special values to float16", aten._to_copy.default, special(), dtype=torch.float16)
    yield call("aten::_to_copy.out", "special values to bool", aten._to_copy.default, special(), dtype=torch.bool)
    yield call(
        "aten::_to_copy.out",
        "float64 to float32 overflow",
        aten._to_copy.default,
        torch.tensor([1e300, -1e-300], dtype=torch.float64),
        dtype=torch.float32,
    )
    yield call(
        "aten::_to_copy.out",
        "int64 to int8 wraps",
        aten._to_copy.default,
        torch.tensor([300, -200, 128]),
        dtype=torch.int8,
    )
    yield call("aten::copy.out", "broadcast", aten.copy.default, torch.zeros(*X), tensor(3, 1))
    yield call("aten::copy.out", "int32 into float32", aten.copy.default, torch.zeros(*X), x.int())
    to = order._to_dim_order_copy.default
    for dtype in ALL:
        other = torch.float32 if dtype != "float32" else torch.int32
        value = tensor(2, 3, 4, 5, dtype=dtype)
        yield call(
            "dim_order_ops::_to_dim_order_copy.out", f"{dtype} to channels_last", to, value, dim_order=[0, 2, 3, 1]
        )
        yield call(
            "dim_order_ops::_to_dim_order_copy.out",
            f"{dtype} to {other}",
            to,
            value.contiguous(memory_format=torch.channels_last),
            dtype=other,
            dim_order=[0, 1, 2, 3],
        )
    yield call(
        "dim_order_ops::_to_dim_order_copy.out",
        "from channels_last",
        to,
        channels_last(2, 3, 4, 5),
        dim_order=[0, 1, 2, 3],
    )
    yield from _clones()
    yield call("aten::_conj_physical.out", "complex64", aten._conj_physical.default, tensor(3, dtype="complex64"))
    yield call(
        "aten::view_as_real_copy.out", "complex64", aten.view_as_real_copy.default, tensor(2, 3, dtype="complex64")
    )
    yield call(
        "aten::view_as_real_copy.out", "complex128", aten.view_as_real_copy.default, tensor(2, 3, dtype="complex128")
    )
    yield call("aten::view_as_real_copy.out", "0-d", aten.view_as_real_copy.default, tensor(dtype="complex64"))


def _clones() -> Iterator[Case]:
    """Into a dim order: `_to_dim_order_copy` in programs, unless nothing changes."""
    operator = "dim_order_ops::_clone_dim_order.out"
    clone = stand_in(
        "clone_dim_order(Tensor self, *, bool non_blocking=False, int[]? dim_order=None) -> Tensor",
        lambda x, non_blocking=False, dim_order=None: order._clone_dim_order.default(x, dim_order=dim_order),
    )
    for dtype in ALL:
        yield renamed_call(operator, dtype, clone, tensor(*X, dtype=dtype), dim_order=[0, 1, 2])
    image = tensor(2, 3, 4, 5)
    yield renamed_call(operator, "to channels_last", clone, image, dim_order=[0, 2, 3, 1])
    yield renamed_call(operator, "from channels_last", clone, channels_last(2, 3, 4, 5), dim_order=[0, 1, 2, 3])


def shape_cases() -> Iterator[Case]:
    yield from views()
    yield from pieces()
    yield from padding()
    yield from copies()
