"""Custom operators that change their arguments: functional graphs of them, and programs that do what eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

import delegraph
from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.graph.out_variants import out_variant
from delegraph.aot.lower import to_edge
from delegraph.errors import LoweringError, MissingKernel
from delegraph.interfaces import KernelLibrary
from delegraph.program import to_text

Write = Callable[[torch.Tensor, torch.Tensor], Any]
NAMESPACE = "delegraph_test_mutates"


@torch.library.custom_op(f"{NAMESPACE}::put", mutates_args={"cache"})
def put(cache: torch.Tensor, row: torch.Tensor, position: int) -> None:
    cache[position] = row


@torch.library.custom_op(f"{NAMESPACE}::put_and_sum", mutates_args={"cache"})
def put_and_sum(row: torch.Tensor, cache: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
    cache[position] = row
    return cache.sum(0), row * 2


@put_and_sum.register_fake
def _(row: torch.Tensor, cache: torch.Tensor, position: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(row), torch.empty_like(row)


@torch.library.custom_op(f"{NAMESPACE}::swap", mutates_args={"a", "b"})
def swap(a: torch.Tensor, b: torch.Tensor) -> None:
    held = a.clone()
    a.copy_(b)
    b.copy_(held)


@torch.library.custom_op(f"{NAMESPACE}::bump", mutates_args={"counts", "all"})
def bump(x: torch.Tensor, counts: torch.Tensor | None, all: list[torch.Tensor]) -> torch.Tensor:
    if counts is not None:
        counts.add_(1)
    for index, one in enumerate(all):
        one.add_(index)
    return x + 1


@bump.register_fake
def _(x: torch.Tensor, counts: torch.Tensor | None, all: list[torch.Tensor]) -> torch.Tensor:
    return torch.empty_like(x)


library = KernelLibrary("mutating")


@library.kernel(f"{NAMESPACE}::put")
def put_kernel(context: Any, cache: Any, row: Any, position: int) -> None:
    cache[position] = row


@library.kernel(f"{NAMESPACE}::put_and_sum.out")
def put_and_sum_kernel(context: Any, row: Any, cache: Any, position: int, out0: Any, out1: Any) -> None:
    cache[position] = row
    np.sum(cache, axis=0, out=context.resize(out0, row.shape))
    np.multiply(row, 2, out=context.resize(out1, row.shape))


@library.kernel(f"{NAMESPACE}::swap")
def swap_kernel(context: Any, a: Any, b: Any) -> None:
    a[...], b[...] = b.copy(), a.copy()


@library.kernel(f"{NAMESPACE}::bump.out")
def bump_kernel(context: Any, x: Any, counts: Any, all: Any, out: Any) -> None:
    if counts is not None:
        counts += 1
    for index, one in enumerate(all):
        one += index
    np.add(x, 1, out=context.resize(out, x.shape))


class Cache(torch.nn.Module):
    """A buffer [4, 3] that `write` changes; views of it are made before and read after."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.register_buffer("cache", torch.arange(12.0).reshape(4, 3))
        self.write = write

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache: torch.Tensor = self.cache
        row, turned = cache[1], cache.t()
        given = self.write(cache, x)
        results = [leaf for leaf in pytree.tree_leaves(given) if leaf is not None]
        return *results, row + 0, turned.sum(0), cache * x


WRITES: dict[str, Write] = {
    "whole": lambda c, x: put(c, x, 1),
    "slice": lambda c, x: put(c[1:3], x, -1),
    "view": lambda c, x: put(c.view(2, 2, 3)[1], x, 0),
    "transposed": lambda c, x: put(c.t(), x.sum().expand(4), 2),
    "with results": lambda c, x: put_and_sum(x, c[1:], 0),
    "results unused": lambda c, x: put_and_sum(x, c, 0) and None,
    "twice": lambda c, x: (put(c, x, 0), put(c[:2], c[3] + x, 1)),
    "with an in-place call": lambda c, x: (put(c, x, 0), c.mul_(2), put(c, x, 3)),
    "two parts": lambda c, x: swap(c[0], c[2]),
    "the input": lambda c, x: swap(x, c[1]),
    "an intermediate": lambda c, x: [y := x.repeat(4, 1), put(y, x + 1, 2)][0],
    "one that may be None and a list": lambda c, x: bump(x * 2, c[0], all=[c[1], x, c[3]]),
    "None and an empty list": lambda c, x: bump(x, counts=None, all=[]),
    "channels last": lambda c, x: [
        y := x.reshape(1, 3, 1, 1).repeat(2, 1, 2, 2).to(memory_format=torch.channels_last),
        put(y, y[1] * 2, 0),
    ][0],
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_programs_do_what_eager_does(write: Write) -> None:
    model, x = Cache(write), torch.tensor([0.5, -1.0, 2.0])
    edge = to_edge(torch.export.export(model, (x,)))
    config = ExecutorchBackendConfig(kernels=[library, "portable"])
    run = delegraph.load(bytes(edge.to_executorch(config).buffer), kernels=[library, "portable"])
    module, eager = edge.exported_program().module(), copy.deepcopy(model)
    for step in range(3):
        wanted_x, module_x, run_x = (x + step for _ in range(3))  # the runtime copies its inputs
        wanted = eager(wanted_x)
        torch.testing.assert_close(module(module_x), wanted)
        got = run(run_x)
        torch.testing.assert_close([torch.as_tensor(value) for value in got], list(wanted))
        torch.testing.assert_close(module_x, wanted_x)


DECOMPOSED = ("whole", "slice", "view", "transposed", "with results", "twice", "two parts", "None and an empty list")


@pytest.mark.parametrize("write", DECOMPOSED)
def test_programs_that_torch_has_decomposed(write: str) -> None:
    """torch writes such calls in a form of its own, `auto_functionalized_v2`."""
    model, x = Cache(WRITES[write]), torch.tensor([0.5, -1.0, 2.0])
    edge = to_edge(torch.export.export(model, (x,)).run_decompositions({}))
    module, eager = edge.exported_program().module(), copy.deepcopy(model)
    config = ExecutorchBackendConfig(kernels=[library, "portable"])
    run = delegraph.load(bytes(edge.to_executorch(config).buffer), kernels=[library, "portable"])
    for step in range(2):
        wanted = eager(x + step)
        torch.testing.assert_close(module(x + step), wanted)
        torch.testing.assert_close([torch.as_tensor(value) for value in run(x + step)], list(wanted))


def test_the_buffer_is_an_output_like_any_other_that_changes() -> None:
    program = to_edge(torch.export.export(Cache(WRITES["slice"]), (torch.zeros(3),))).exported_program()
    mutations = [spec for spec in program.graph_signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION]
    assert [spec.target for spec in mutations] == ["cache"]
    assert not any(getattr(n.target, "_schema", None) and n.target._schema.is_mutable for n in program.graph.nodes)


def test_the_kernel_works_in_the_buffer_where_nobody_reads_its_old_value_later(lower_model: Any) -> None:
    text = to_text(lower_model(Cache(WRITES["whole"]), (torch.zeros(3),)).executorch_program)
    calls = [line.partition(": ")[2] for line in text.splitlines() if "::" in line]
    cache = next(line.split()[0] for line in text.splitlines() if "'cache'" in line)
    assert any(call.startswith(f"{NAMESPACE}::put({cache}, ") for call in calls)
    assert not any(call.startswith(("aten::clone.out(", "aten::copy_(")) and cache in call for call in calls)


def test_dynamic_shapes() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 1
            put(y[:2], y[-1] + 1, 1)
            return y

    x = torch.randn(5, 2)
    config = ExecutorchBackendConfig(kernels=[library, "portable"])
    lowered = delegraph.lower(Model(), (x,), dynamic_shapes=({0: Dim("rows", min=2, max=8)},), config=config)
    run = delegraph.load(bytes(lowered), kernels=[library, "portable"])
    for rows in (5, 2, 8):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(run(x), Model()(x))


def test_the_report_and_a_missing_kernel_name_the_operator() -> None:
    model, x = Cache(WRITES["with results"]), torch.zeros(3)
    config = ExecutorchBackendConfig(kernels=[library, "portable"])
    report = delegraph.lower(model, (x,), config=config).report
    assert f"{NAMESPACE}::put_and_sum" in str(report)
    assert "auto_functionalized" not in {entry.operator for entry in report.methods["forward"].leftovers}
    with pytest.raises(MissingKernel, match=rf"{NAMESPACE}::put_and_sum\.out"):
        delegraph.lower(model, (x,))


def test_the_out_variant_of_one_with_results() -> None:
    variant = out_variant(put_and_sum._opoverload)
    assert str(variant.schema) == (
        f"{NAMESPACE}::put_and_sum.out(Tensor row, Tensor(a1!) cache, SymInt position, *, Tensor(a!) out0,"
        " Tensor(b!) out1) -> (Tensor(a!), Tensor(b!))"
    )
    assert out_variant(put._opoverload).schema == put._opoverload._schema


@pytest.mark.parametrize(
    "write", [lambda c, x: swap(c[:2], c[1:3]), lambda c, x: put(c, c[0], 1)], ids=["both changed", "one read"]
)
def test_arguments_that_share_what_is_changed_are_refused(write: Write) -> None:
    with pytest.raises(LoweringError, match=r"changes its arguments, and .* and .* show the same memory") as error:
        to_edge(torch.export.export(Cache(write), (torch.zeros(3),)))
    assert "test_mutating_calls.py" in str(error.value)


def test_they_are_refused_in_a_program_that_torch_has_decomposed() -> None:
    program = torch.export.export(Cache(lambda c, x: swap(c[:2], c[1:3])), (torch.zeros(3),)).run_decompositions({})
    with pytest.raises(LoweringError, match=r"swap\.default changes a and b, which show the same memory") as error:
        to_edge(program)
    assert "test_mutating_calls.py" in str(error.value)


def test_one_that_returns_its_argument_needs_a_functional_form() -> None:
    with torch.library._scoped_library("delegraph_test_returns", "DEF") as mine:
        mine.define("fill(Tensor(a!) x, float value) -> Tensor(a!)")
        mine.impl("fill", lambda x, value: x.fill_(value), "CompositeExplicitAutograd")

        class Model(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ops.delegraph_test_returns.fill(x * 2, 3.0) + 1

        with pytest.raises(LoweringError, match="no functional form of the same name and overload"):
            to_edge(torch.export.export(Model(), (torch.zeros(3),)))
