"""Images at another size, by scales that need not be the ratio of the sizes, as torch's own operators compute them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import delegraph

pytestmark = pytest.mark.long

aten = torch.ops.aten

BACKENDS: list[list[str]] = [[], ["cpu"]]

SCALES: dict[int, list[tuple[list[int], list[float | None]]]] = {
    1: [([9], [2.0]), ([8], [2.1]), ([4], [3.0]), ([8], [None]), ([3], [0.5])],
    2: [
        ([9, 8], [2.0, 2.0]),
        ([9, 8], [2.0, None]),
        ([9, 8], [None, 2.0]),
        ([8, 4], [3.0, 3.0]),
        ([8, 8], [None, 2.1]),
        ([3, 2], [0.5, 0.5]),
    ],
    3: [([2, 9, 8], [1.0, 2.0, 2.1]), ([4, 8, 4], [3.0, 3.0, None])],
}
CALLS = [
    (name.format(dims), [size, *middle, *scales])
    for dims in (1, 2, 3)
    for size, scales in SCALES[dims]
    for name, middle in [
        ("upsample_nearest{}d", []),
        ("_upsample_nearest_exact{}d", []),
        *([("upsample_bicubic2d", [False])] if dims == 2 else []),
        *([] if dims == 1 else [({2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}[dims], [False])]),
    ]
]


def lowered(model: nn.Module, images: torch.Tensor, backends: list[str], dynamic: Any = None) -> delegraph.Module:
    return delegraph.load(bytes(delegraph.lower(model, (images,), backends=backends, dynamic_shapes=dynamic)))


class Call(nn.Module):
    def __init__(self, operator: Any, arguments: list[Any]) -> None:
        super().__init__()
        self.operator, self.arguments = operator, arguments

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        resized: torch.Tensor = self.operator(x.relu(), *self.arguments)
        return resized + 1


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=str)
def test_a_scale_that_is_not_the_ratio(name: str, arguments: list[Any], backends: list[str]) -> None:
    images = torch.rand(2, 3, *[4] * (len(arguments[0])))
    model = Call(getattr(aten, name).default, arguments)
    run = lowered(model, images, backends)
    torch.testing.assert_close(torch.as_tensor(run(images)), model(images))


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_same_pixels_at_sizes_of_the_run(dims: int, mode: str, backends: list[str]) -> None:
    """At 4, a factor of 2.1 doubles an image: torch's kernel of two dims overlooks it then, the others don't."""

    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2.1, mode=mode)

    images = torch.rand(1, 2, *[6] * dims)
    sizes = {2: Dim("rows", min=2, max=40)}
    run = lowered(Call(resized, []), images, backends, (sizes,))
    for rows in (2, 3, 4, 6, 21, 40):
        other = torch.rand(1, 2, rows, *[6] * (dims - 1))
        torch.testing.assert_close(torch.as_tensor(run(other)), Call(resized, [])(other))


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pixels_between_which_rounding_decides(dims: int, mode: str, backends: list[str]) -> None:
    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=[*[2] * (dims - 1), 41], mode=mode)

    images = torch.rand(1, 2, *[2] * dims)
    run = lowered(Call(resized, []), images, backends)
    torch.testing.assert_close(torch.as_tensor(run(images)), Call(resized, [])(images))


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
@pytest.mark.parametrize("scale", [1.1, 1.2, (1.1, 1.5)], ids=str)
@pytest.mark.parametrize(("mode", "dims"), [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)])
def test_a_scale_that_leaves_an_image_as_large(mode: str, dims: int, scale: Any, backends: list[str]) -> None:
    """torch copies the linear ones, and weighs the cubic ones by the scale."""
    scales = [scale] * dims if isinstance(scale, float) else [*scale, *scale][:dims]

    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=scales, mode=mode)

    images = torch.rand(1, 2, *[4] * dims)
    run = lowered(Call(resized, []), images, backends)
    torch.testing.assert_close(torch.as_tensor(run(images)), Call(resized, [])(images))
