"""A resized image -> which pixels are read."""

from __future__ import annotations

import torch
from torch.fx import Node

from delegraph.aot.graph.schema_binding import named_arguments

__all__ = ["nearest_pixels", "resize_scales"]


def resize_scales(node: Node) -> tuple[float | None, ...]:
    """The scales that an `upsample_*` call gives, for each dim of its images; None of one that its sizes say."""
    arguments = named_arguments(node)
    dims = node.meta["val"].dim() - 2
    if "scale_factors" in arguments:
        return tuple(arguments["scale_factors"] or [None] * dims)
    names = ["scales"] if dims == 1 else ["scales_d", "scales_h", "scales_w"][-dims:]
    return tuple(arguments[name] for name in names)


def nearest_pixels(name: str, dims: int, before: int, after: int, scale: float | None = None) -> list[int]:
    """Which of `before` pixels is at each of `after` places, by torch's own operator, which multiplies in float32.

    `name` is "upsample_nearest" or "_upsample_nearest_exact", whose kernels of 1, 2 and 3 `dims` differ: it is told for
    the last of them.
    """
    numbered = torch.arange(before, dtype=torch.float32).reshape([1] * (dims + 1) + [before])
    rest = dims - 1
    operator = getattr(torch.ops.aten, f"{name}{dims}d").default
    read: torch.Tensor = operator(numbered, [1] * rest + [after], *[None] * rest, scale)
    return [int(pixel) for pixel in read.flatten()]
