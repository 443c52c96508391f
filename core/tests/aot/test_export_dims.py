"""Examples of size 1 on dynamic dims: the program takes every size of the Dim, as with another example."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

import delegraph
from delegraph.aot.export import export_method, export_requests
from delegraph.aot.export_dims import Examples, free_examples
from delegraph.errors import LoweringError

BATCH = Dim("batch", max=16)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(-1) + y[: x.shape[0]].sum(-1)


def exported(model: nn.Module, args: tuple[Any, ...], shapes: Any) -> ExportedProgram:
    return export_method("forward", export_requests(model.eval(), args, None, shapes)["forward"])


def sizes(program: ExportedProgram) -> list[list[str]]:
    inputs = program.graph_signature.user_inputs
    return [[str(size) for size in node.meta["val"].shape] for node in program.graph.nodes if node.name in inputs]


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_an_example_of_one_row_lowers_for_every_batch(size: int) -> None:
    model = nn.Linear(4, 3).eval()
    run = delegraph.load(bytes(delegraph.lower(model, (torch.ones(1, 4),), dynamic_shapes={"input": {0: BATCH}})))
    x = torch.randn(size, 4)
    torch.testing.assert_close(run(x), model(x))


@pytest.mark.parametrize(
    ("shapes", "first", "second"),
    [
        ({"x": {0: BATCH}, "y": {0: 2 * BATCH}}, (2, 3), (4, 3)),
        (({0: BATCH}, {0: BATCH + 1}), (2, 3), (3, 3)),
        (({0: Dim.DYNAMIC}, {0: Dim("other", max=9)}), (2, 3), (2, 3)),
        (((Dim.DYNAMIC(max=8), None), None), (2, 3), (2, 3)),
        (({0: Dim.DYNAMIC(max=1)}, {0: Dim.STATIC}), (1, 3), (2, 3)),
        (({0: Dim("one", max=1)}, {0: Dim.AUTO}), (1, 3), (2, 3)),
        (({0: Dim("many", min=4, max=9)}, None), (1, 3), (2, 3)),
        (({0: BATCH}, {0: BATCH}), (1, 3), (2, 3)),
        (None, (1, 3), (2, 3)),
    ],
    ids=["twice", "one more", "a hint", "by place", "at most one", "a Dim of one", "four or more", "at odds", "fixed"],
)
def test_examples_leave_dims_free(shapes: Any, first: tuple[int, int], second: tuple[int, int]) -> None:
    free = free_examples(Sum(), Examples((torch.ones(1, 3), torch.ones(2, 3)), {}), shapes)
    assert [tuple(arg.shape) for arg in free.args] == [first, second]


def test_the_order_of_memory_and_the_gradient_stay() -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last).requires_grad_()
    free = free_examples(nn.Identity(), Examples((x,), {}), ({0: BATCH},))
    assert free.resized == ("args[0]",)
    assert free.args[0].requires_grad
    assert free.args[0].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(free.args[0], torch.cat([x, x]))


def test_a_tensor_given_twice_varies_where_it_should() -> None:
    x = torch.ones(1, 3)
    program = exported(Sum(), (x, x), {"x": {0: BATCH}, "y": None})
    (batch, _), second = sizes(program)
    assert batch.startswith("s")
    assert second == ["1", "3"]


def test_examples_within_structures_are_named_and_renewed() -> None:
    class Nested(nn.Module):
        def forward(self, pair: dict[str, torch.Tensor], *, scale: torch.Tensor) -> torch.Tensor:
            return pair["x"] * scale

    examples = Examples(({"x": torch.ones(1, 3)},), {"scale": torch.ones(1, 1)})
    free = free_examples(Nested(), examples, {"pair": {"x": {0: BATCH}}, "scale": {0: BATCH}})
    assert free.resized == ("args[0]['x']", "kwargs['scale']")
    assert free.kwargs["scale"].shape == (2, 1)


def test_a_model_that_takes_one_row_alone_says_what_was_tried() -> None:
    class Single(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(3)

    with pytest.raises(
        LoweringError, match=r"fails on the example(?s:.*)size 1 on a dynamic dim was made longer.*args"
    ):
        exported(Single(), (torch.ones(1, 3),), {"x": {0: BATCH}})
