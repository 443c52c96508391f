"""What arguments mean, against torch itself: dims of reductions, windows, resized images, limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import export
from torch.fx import Node

from delegraph.aot.authoring import (
    clamp_limits,
    nearest_pixels,
    overhang,
    per_dim,
    reduced_dims,
    resize_scales,
    same_padding,
)

Tensor = torch.Tensor


def last_call(function: Callable[..., Tensor], *args: Tensor) -> Node:
    class Of(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return function(*args)

    graph = export(Of(), args).graph
    calls: list[Node] = [node for node in graph.nodes if node.op == "call_function"]
    return calls[-1]


@pytest.mark.parametrize("dims", [None, [], 1, -1, [0, -1], [2, 0], [-3, 2]])
def test_dims_of_a_reduction(dims: Any) -> None:
    x = torch.randn(2, 3, 4)
    over = reduced_dims(3, dims)
    wanted = x.sum() if dims is None or dims == [] else x.sum(dims)
    assert list(over) == sorted(over) and torch.allclose(x.sum(over), wanted)
    assert reduced_dims(0, dims if dims in (None, []) else -1) == ()


def test_a_number_stands_for_all_dims() -> None:
    assert per_dim(2, 3) == per_dim([2], 3) == [2, 2, 2]
    assert per_dim((1, 2), 2) == [1, 2] and per_dim([], 2) == []


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (4, 3), (5, 2), (2, 3)])
def test_same_padding_is_torchs(kernel: int, dilation: int) -> None:
    x, weight = torch.randn(1, 1, 17), torch.randn(1, 1, kernel)
    padded = F.pad(x, same_padding([kernel], [dilation])[0])
    torch.testing.assert_close(
        F.conv1d(padded, weight, dilation=dilation), F.conv1d(x, weight, padding="same", dilation=dilation)
    )


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation"), [
    (8, 3, 2, 0, 1), (8, 3, 2, 1, 1), (7, 2, 2, 0, 1), (9, 2, 4, 1, 1), (10, 3, 3, 1, 2), (8, 2, 2, 0, 1),
])  # fmt: skip
def test_what_ceil_mode_adds(size: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    """So much more behind gives the same windows without it."""
    x = torch.randn(1, 1, size)
    rounded_up = F.max_pool1d(x, kernel, stride, padding, dilation, ceil_mode=True)
    (more,) = overhang([size], [rounded_up.shape[-1]], [kernel], [stride], [padding], [dilation])
    padded = F.pad(x, (padding, padding + more), value=-math.inf)
    assert torch.equal(F.max_pool1d(padded, kernel, stride, 0, dilation), rounded_up)


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 3), (14, 46), (2, 82), (9, 111), (5, 5)])
@pytest.mark.parametrize("dims", [1, 2])
def test_which_pixel_is_nearest(before: int, after: int, dims: int) -> None:
    x = torch.arange(before, dtype=torch.float32).reshape([1] * (dims + 1) + [before])
    sizes = [*[1] * (dims - 1), after]
    assert nearest_pixels("upsample_nearest", dims, before, after) == F.interpolate(x, sizes).flatten().tolist()


def test_scales_of_a_resized_image() -> None:
    images = torch.randn(1, 1, 4, 4)
    assert resize_scales(last_call(lambda x: F.interpolate(x, scale_factor=(2.0, 3.0)), images)) == (2.0, 3.0)
    assert resize_scales(last_call(lambda x: F.interpolate(x, size=(7, 8)), images)) == (None, None)
    named = torch.ops.aten.upsample_nearest2d.default
    assert resize_scales(last_call(lambda x: named(x, [8, 12], 2.0, 3.0), images)) == (2.0, 3.0)
    named = torch.ops.aten.upsample_nearest1d.default
    assert resize_scales(last_call(lambda x: named(x, [8], 2.0), images[0])) == (2.0,)


@pytest.mark.parametrize(
    ("function", "limits"),
    [
        (F.relu, (0, math.inf)),
        (F.relu6, (0, 6)),
        (F.hardtanh, (-1, 1)),
        (lambda x: F.hardtanh(x, -2, 3), (-2, 3)),
        (lambda x: x.clamp(min=1), (1, math.inf)),
        (lambda x: x.clamp(max=-0.5), (-math.inf, -0.5)),
        (lambda x: x.clamp(2, 1), (1, 1)),
        (lambda x: x.clamp(math.nan), None),
        (lambda x: x.clamp(x), None),
        (torch.sigmoid, None),
    ],
)
def test_between_what_an_activation_limits(function: Callable[..., Tensor], limits: Any) -> None:
    assert clamp_limits(last_call(function, torch.randn(3))) == limits
