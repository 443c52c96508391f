"""Sizes, dim orders and bounds of tensors, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from delegraph.aot.graph.dtypes import scalar_type_of
from delegraph.aot.graph.tensor_spec import Bounds, spec_of_tensor
from delegraph.errors import LoweringError, UnboundedDimension
from delegraph.program.schema import Tensor, TensorShapeDynamism


class Rows(nn.Module):
    def forward(self, x):
        return x.view(x.shape[0] * 2, 2) + 1


def tensors(manager) -> list[Tensor]:
    return [v for v in manager.executorch_program.execution_plan[0].values if isinstance(v, Tensor)]


@pytest.mark.parametrize("dim", [Dim.DYNAMIC, Dim("n"), Dim.AUTO])
def test_an_open_dimension_is_an_error_not_the_examples_size(lower_model, dim) -> None:
    with pytest.raises(UnboundedDimension) as caught:
        lower_model(Rows(), (torch.randn(3, 4),), dynamic_shapes=({0: dim},))
    assert "dimension 0 of input 'x' has no upper bound" in str(caught.value)
    assert 'dynamic_shapes={"x": {0: Dim("n", max=1024)}}' in str(caught.value)


def test_sizes_are_upper_bounds(lower_model) -> None:
    found = tensors(lower_model(Rows(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", max=7)},)))
    assert {t.sizes for t in found} == {(7, 4), (14, 2)}
    assert {t.shape_dynamism for t in found} == {TensorShapeDynamism.DYNAMIC_BOUND}


def test_a_size_from_the_data_without_bound_says_what_to_state(lower_model) -> None:
    class Model(nn.Module):
        def forward(self, x):
            n = x.max().item()
            torch._check(n >= 0)
            return torch.ones(n)

    with pytest.raises(UnboundedDimension, match=r"depends on the data .* torch._check\(n <= 1024\)"):
        lower_model(Model(), (torch.tensor([3, 4]),))


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (torch.empty(2, 3, 4), (0, 1, 2)),
        (torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last), (0, 2, 3, 1)),
        (torch.empty(2, 1, 4, 5).to(memory_format=torch.channels_last), (0, 1, 2, 3)),  # one channel: both, so neither
        (torch.empty(1, 3, 1, 1).to(memory_format=torch.channels_last), (0, 1, 2, 3)),
        (torch.empty(3, 4).t(), (0, 1)),
        (torch.empty(0, 4).t(), (0, 1)),
        (torch.empty(()), ()),
        (torch.empty(3).expand(4, 3), (0, 1)),  # a weight without dim order is made contiguous
    ],
)
def test_dim_orders_of_weights(tensor: torch.Tensor, order: tuple[int, ...]) -> None:
    assert spec_of_tensor(tensor).dim_order == order


def test_dim_orders_of_values() -> None:
    node = torch.fx.Graph().placeholder("x")
    assert Bounds().spec(torch.empty(3, 4).t(), node).dim_order == (1, 0)
    assert Bounds().spec(torch.empty(2, 3, 4).permute(2, 0, 1), node).dim_order == (1, 2, 0)


def test_a_value_without_dim_order_is_refused() -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    with pytest.raises(LoweringError, match=r"strides \(0, 1\) is not a dense permutation .*\n  node: x"):
        Bounds().spec(torch.empty(3).expand(4, 3), node)


def test_too_many_dimensions() -> None:
    node = torch.fx.Graph().placeholder("x")
    with pytest.raises(LoweringError, match="rank 17; a runtime takes at most 16"):
        Bounds().spec(torch.empty([1] * 17), node)


def test_a_dtype_that_no_file_holds() -> None:
    with pytest.raises(LoweringError, match=r"torch.quint8 tensors cannot stand in a program"):
        scalar_type_of(torch.quint8)


def test_results_in_an_order_of_their_own_are_made_contiguous(lower_model) -> None:
    """`nonzero` gives column-major indices in eager mode; kernels expect a usual layout."""

    class Model(nn.Module):
        def forward(self, x):
            return torch.nonzero(x)

    (_, indices) = tensors(lower_model(Model(), (torch.randn(3, 4),)))
    assert (indices.sizes, indices.dim_order) == ((12, 2), (0, 1))
