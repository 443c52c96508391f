"""Functional operators and the overloads that run them on planned memory."""

from __future__ import annotations

import pytest
import torch

from delegraph.aot.out_variants import out_variant
from delegraph.errors import MissingOutVariant

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "name", "outs"),
    [
        (aten.add.Tensor, "aten::add.out", ("out",)),
        (aten.add.Scalar, "aten::add.Scalar_out", ("out",)),
        (aten.full.default, "aten::full.out", ("out",)),
        (aten.arange.start_step, "aten::arange.start_out", ("out",)),
        (aten.empty.memory_format, "aten::empty.out", ("out",)),
        (aten.max.dim, "aten::max.dim_max", ("max", "max_values")),
        (aten.max.default, "aten::max.unary_out", ("out",)),
        (aten.sum.dim_IntList, "aten::sum.IntList_out", ("out",)),
        (aten.topk.default, "aten::topk.values", ("values", "indices")),
        (aten.split_with_sizes_copy.default, "aten::split_with_sizes_copy.out", ("out",)),
        (aten.native_layer_norm.default, "aten::native_layer_norm.out", ("out0", "out1", "out2")),
        (aten.copy_.default, "aten::copy_", ()),
        (aten.index_put_.default, "aten::index_put_", ()),
    ],
)
def test_the_out_variant_has_the_same_arguments_and_results(op, name: str, outs: tuple[str, ...]) -> None:
    variant = out_variant(op)
    assert (str(variant.operator), variant.outs) == (name, outs)


def test_every_core_operator_that_returns_tensors_has_one() -> None:
    """What remains are views (the edge dialect has their copies) and operators of symbolic numbers."""
    missing = set()
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, packet), overload or "default")
        returns_tensors = all(str(r.type) in ("Tensor", "List[Tensor]") for r in op._schema.returns)
        if torch.Tag.core in op.tags and returns_tensors and op._schema.returns and not op.is_view:
            try:
                out_variant(op)
            except MissingOutVariant:
                missing.add(name)
    assert missing == set()


def test_without_an_out_overload_the_schema_to_register_is_told() -> None:
    with pytest.raises(MissingOutVariant) as caught:
        out_variant(aten.squeeze.dim)
    assert "no overload takes out" in str(caught.value)
    assert "squeeze.out(Tensor(a) self, int dim, *, Tensor(a!) out) -> Tensor(a!)" in str(caught.value)


def test_all_missing_ones_of_a_program_are_told_at_once(lower_model) -> None:
    with torch.library._scoped_library("delegraph_test_out", "DEF") as library:
        library.define("one(Tensor x, int k=3) -> Tensor")
        library.define("two(Tensor x) -> (Tensor, Tensor)")
        library.define("two.out(Tensor x, Tensor y, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl("one", lambda x, k=3: torch.empty_like(x), "Meta")
        library.impl("two", lambda x: (torch.empty_like(x), torch.empty_like(x)), "Meta")

        class Model(torch.nn.Module):
            def forward(self, x):
                a, b = torch.ops.delegraph_test_out.two(x)
                return torch.ops.delegraph_test_out.one(a) + torch.ops.delegraph_test_out.one(b)

        with pytest.raises(MissingOutVariant) as caught:
            lower_model(Model(), (torch.randn(3),))
    text = str(caught.value)
    assert text.startswith("2 operators cannot run on planned memory")
    assert "the out overloads are delegraph_test_out::two.out, none with its arguments" in text
    assert "one.out(Tensor x, int k=3, *, Tensor(a!) out) -> Tensor(a!)" in text
    assert "two.out(Tensor x, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))" in text
    assert text.count("test_out_variants.py") == 4  # each use with its line, and the first one again as the location
    assert caught.value.node == "two_default" or caught.value.node is not None
