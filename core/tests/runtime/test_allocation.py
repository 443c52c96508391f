"""Memory that no plan has a place for: from the platform, within limits, kept or given away by a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidProgram, LimitExceeded, MemoryAllocationFailed, PluginLoadError, PluginNotFound
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.schema import AllocationDetails, TensorShapeDynamism
from delegraph.runtime import KernelLibrary, Limits, Platform, Runtime, load


class Counting:
    """An allocator that remembers what it gave."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, nbytes: int) -> Any:
        self.given.append(np.zeros(nbytes, np.uint8))
        return self.given[-1]

    @property
    def sizes(self) -> list[int]:
        return [len(memory) for memory in self.given]

    def gave(self, array: Any) -> bool:
        return any(np.shares_memory(array, memory) for memory in self.given)


@pytest.fixture
def allocate() -> Counting:
    return Counting()


@pytest.fixture
def loaded(allocate: Counting, kernels: KernelLibrary) -> Any:
    @kernels.kernel("test::positive.out")
    def positive(context: Any, a: Any, out: Any) -> None:
        positive = a[a > 0]
        context.resize(out, positive.shape)[...] = positive

    def of(build: Any, plan: Any, **options: Any) -> Any:
        runtime = Runtime(kernels=[kernels], platform=Platform(allocate=allocate))
        return runtime.load_program(build.program(plan)).load_method("forward", **options)

    return of


def unbounded(build: Any, rank: int = 1) -> int:
    index: int = build.tensor(*[1] * rank, planned=False)
    build.values[index] = replace(build.values[index], shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    return index


def positives(build: Any) -> Any:
    """x -> twice those of its elements that are positive; neither has an upper bound."""
    x, chosen, out = unbounded(build), unbounded(build), unbounded(build)
    build.call("test::positive.out", x, chosen)
    build.call("test::positive.out", chosen, out)
    return build.plan([x], [out])


def test_an_output_without_bound_is_the_allocators_and_the_callers(build: Any, loaded: Any, allocate: Counting) -> None:
    method = loaded(build, positives(build))
    outputs = [method.execute([np.float32(x)])[0] for x in ([1, -2, 3], [-1], [4, 5, 6, 7])]
    assert [output.tolist() for output in outputs] == [[1, 3], [], [4, 5, 6, 7]]
    assert allocate.gave(outputs[0])
    assert allocate.gave(outputs[2])


@pytest.mark.parametrize("is_output", [True, False])
def test_a_rank_of_zero_is_one_element_also_without_bound(build: Any, loaded: Any, is_output: bool) -> None:
    x, inner, out = build.tensor(), unbounded(build, 0), build.tensor()
    build.call("aten::add.out", x, x, build.int(1), inner)
    build.call("aten::add.out", inner, x, build.int(1), out)
    method = loaded(build, build.plan([x], [inner, out] if is_output else [out]))
    assert [float(value) for value in method.execute([np.float32(2)])] == [4, 6][not is_output :]


def test_memory_is_kept_while_it_is_large_enough(build: Any, loaded: Any, allocate: Counting) -> None:
    method = loaded(build, positives(build))
    allocate.given.clear()
    for count in (2, 2, 1, 4, 3):
        method.execute([np.ones(count, np.float32)])
    inner, output = [8, 16], [8, 8, 4, 16, 12]
    assert sorted(allocate.sizes) == sorted(inner + output)


@pytest.mark.parametrize("is_output", [True, False])
def test_rows_stay_as_their_tensor_grows(build: Any, loaded: Any, is_output: bool) -> None:
    """A `map` whose number of rows has no bound stacks them one by one."""
    rows, stacked = [build.tensor(2), build.tensor(2), build.tensor(2)], unbounded(build, 2)
    for number, row in enumerate(rows):
        build.prim("executorch_prim::et_copy_index.tensor", stacked, row, build.int(number))
    out = stacked if is_output else build.call("aten::add.out", stacked, rows[0], build.int(1), build.tensor(3, 2))
    method = loaded(build, build.plan(rows, [out]))
    outputs = method.execute([np.float32([n, n + 1]) for n in (0, 4, 8)])
    assert (outputs[0] - (0 if is_output else np.float32([0, 1]))).tolist() == [[0, 1], [4, 5], [8, 9]]


def test_tensors_without_planned_memory_come_from_the_platform(build: Any, loaded: Any, allocate: Counting) -> None:
    x, inner, out = build.tensor(2), build.tensor(2, planned=False), build.tensor(2, planned=False)
    build.call("aten::add.out", x, x, build.int(1), inner)
    build.call("aten::add.out", inner, x, build.int(1), out)
    method = loaded(build, build.plan([x], [out]))
    assert allocate.sizes == [64, 8], "planned memory, and what lies between the two additions"
    first, second = (method.execute([np.full(2, n, np.float32)])[0] for n in (1, 2))
    assert (first.tolist(), second.tolist()) == ([3, 3], [6, 6])
    assert allocate.sizes == [64, 8, 8, 8]
    assert allocate.gave(first) and allocate.gave(second)


def test_the_limit_holds_as_they_grow(build: Any, loaded: Any) -> None:
    method = loaded(build, positives(build), limits=Limits(unplanned_bytes=40))
    assert len(method.execute([np.ones(5, np.float32)])[0]) == 5
    with pytest.raises(LimitExceeded, match="need 48 bytes, and 40 are allowed them"):
        method.execute([np.ones(6, np.float32)])
    assert len(method.execute([np.ones(2, np.float32)])[0]) == 2, "after an error it works"


def test_an_allocator_that_fails(build: Any, loaded: Any, allocate: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    method = loaded(build, positives(build))

    def fail(self: Any, nbytes: int) -> Any:
        raise RuntimeError("the arena is full")

    with monkeypatch.context() as patch:
        patch.setattr(Counting, "__call__", fail)
        with pytest.raises(MemoryAllocationFailed, match=r"allocate\(12\) raised RuntimeError: the arena is full"):
            method.execute([np.ones(3, np.float32)])
    assert len(method.execute([np.ones(3, np.float32)])[0]) == 3


def test_an_unbounded_tensor_has_no_place(build: Any, loaded: Any) -> None:
    x = unbounded(build)
    build.values[x] = replace(build.values[x], allocation_info=AllocationDetails(1, 0))
    with pytest.raises(InvalidProgram, match="value 0: a tensor without an upper bound has a place"):
        loaded(build, replace(build.plan([x], []), non_const_buffer_sizes=(0, 64)))


def test_an_unbounded_output_into_the_callers_array(build: Any, loaded: Any) -> None:
    method, target = loaded(build, positives(build)), np.zeros(2, np.float32)
    assert method.execute([np.float32([1, -2, 3])], out=[target])[0] is target
    assert target.tolist() == [1, 3]


# ---- plug-ins ----------------------------------------------------------------------------------------


def test_a_platform_by_its_name(build: Any, kernels: Any, allocate: Counting) -> None:
    registry = PluginRegistry()
    registry.register("delegraph.platforms", "arena", lambda: Platform(allocate=allocate))
    program = build.program(positives(build))
    runtime = Runtime(kernels=[kernels], plugins=registry, platform="arena")
    assert runtime.environment.platform.allocate is allocate
    with pytest.raises(PluginNotFound, match="arean"):
        load(program, kernels=[kernels], plugins=registry, platform="arean")


@pytest.mark.parametrize(
    ("factory", "text"), [(lambda: 5, "it made 5, which is not a Platform"), (lambda: {}["x"], "it raised KeyError")]
)
def test_a_platform_that_is_none(build: Any, factory: Any, text: str) -> None:
    registry = PluginRegistry()
    registry.register("delegraph.platforms", "arena", factory)
    with pytest.raises(PluginLoadError, match=text):
        Runtime(plugins=registry, platform="arena")
