"""Functional operators and the overloads that run them on planned memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import delegraph
from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.graph.out_variants import out_variant
from delegraph.errors import MissingKernel, MissingOutVariant
from delegraph.interfaces import KernelLibrary

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
    assert "squeeze.dim_out(Tensor(a) self, int dim, *, Tensor(a!) out) -> Tensor(a!)" in str(caught.value)


def test_all_missing_ones_of_a_program_are_told_at_once(lower_model) -> None:
    with torch.library._scoped_library("delegraph_test_out", "DEF") as library:
        library.define("one(Tensor x, int k=3) -> Tensor")
        library.define("one.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
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


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ("f(Tensor x, float k=2) -> Tensor", "f.out(Tensor x, float k=2., *, Tensor(a!) out) -> Tensor(a!)"),
        ("g.over(Tensor x, *, int k) -> Tensor", "g.over_out(Tensor x, *, int k, Tensor(a!) out) -> Tensor(a!)"),
        (
            "h(Tensor[] x) -> (Tensor, Tensor)",
            "h.out(Tensor[] x, *, Tensor(a!) out0, Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))",
        ),
        ("i(Tensor x) -> Tensor[]", "i.out(Tensor x, *, Tensor(a!)[] out) -> Tensor(a!)[]"),
    ],
)
def test_one_is_made_for_a_custom_operator(schema: str, wanted: str) -> None:
    with torch.library._scoped_library("delegraph_test_made", "DEF") as library:
        library.define(schema)
        packet, _, overload = schema.partition("(")[0].partition(".")
        op = getattr(getattr(torch.ops.delegraph_test_made, packet), overload or "default")
        variant = out_variant(op)
        assert str(variant.schema).replace("delegraph_test_made::", "") == wanted
        assert variant.operator.overload == ("over_out" if overload else "out")


def test_none_is_made_for_a_custom_operator_that_gives_a_view() -> None:
    with torch.library._scoped_library("delegraph_test_view", "DEF") as library:
        library.define("part(Tensor(a) x) -> Tensor(a)")
        with pytest.raises(MissingOutVariant, match="no overload takes out"):
            out_variant(torch.ops.delegraph_test_view.part.default)


def test_a_custom_operator_runs_on_a_kernel_that_is_all_there_is_of_its_out_variant() -> None:
    @torch.library.custom_op("delegraph_test_custom::scaled", mutates_args=())
    def scaled(x: torch.Tensor, factor: float, offsets: list[int]) -> torch.Tensor:
        return x * factor + sum(offsets)

    @scaled.register_fake
    def _(x: torch.Tensor, factor: float, offsets: list[int]) -> torch.Tensor:
        return torch.empty_like(x)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scaled(x + 1, 0.5, [1, 2])

    library = KernelLibrary("mine")

    @library.kernel("delegraph_test_custom::scaled.out")
    def scaled_out(context: Any, x: Any, factor: float, offsets: list[int], out: Any) -> None:
        out = context.resize(out, x.shape)
        out[...] = x * factor + sum(offsets)

    config = ExecutorchBackendConfig(kernels=[library, "portable"])
    lowered = delegraph.lower(Model(), (torch.randn(4),), config=config)
    x = torch.randn(4)
    got = delegraph.load(bytes(lowered), kernels=[library, "portable"])(x)
    torch.testing.assert_close(got, Model()(x))
    with pytest.raises(MissingKernel, match=r"delegraph_test_custom::scaled\.out"):
        delegraph.lower(Model(), (torch.randn(4),))


def test_quantized_operators_have_executorchs_names(lower_model) -> None:
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 - defines them

    quantized = torch.ops.quantized_decomposed
    assert str(out_variant(quantized.quantize_per_tensor.default).operator).endswith("::quantize_per_tensor.out")
    assert str(out_variant(quantized.choose_qparams.tensor).operator).endswith("::choose_qparams.Tensor_out")

    class Dynamic(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale, zero = quantized.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
            q = quantized.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
            return quantized.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8)

    x = torch.randn(5, 7)
    run = delegraph.load(bytes(delegraph.lower(Dynamic(), (x,))))
    torch.testing.assert_close(run(x), Dynamic()(x))
