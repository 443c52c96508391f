"""Which kernel of which library a call gets, and why."""

from __future__ import annotations

from typing import Any

import pytest

from delegraph.errors import KernelAlreadyRegistered, OperatorMissing, PluginNotFound
from delegraph.interfaces import KernelLibrary, kernel_key_text
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.schema import ScalarType
from delegraph.runtime.kernels import KernelRegistry

OP = "aten::neg.out"
FLOATS = ((ScalarType.FLOAT, (0, 1)), (ScalarType.FLOAT, (0, 1)))
INTS = ((ScalarType.INT, (0, 1)), (ScalarType.INT, (0, 1)))


def library(name: str, *, fallback: bool = True, partial: bool = False, on_request: bool = False) -> KernelLibrary:
    made = KernelLibrary(name)
    made.on_request = on_request
    if fallback:
        made.kernel(OP)(lambda context, self, out: None)
    if partial:
        orders = [(0, 1), (0, 1)]
        made.kernel(OP, dtypes=["float32"] * 2, dim_orders=orders)(lambda context, self, out: None)
    return made


def chosen(registry: KernelRegistry, key: Any, op: str = OP) -> tuple[str, str]:
    choice = registry.choose(op, key)
    assert choice is not None
    return choice.kernel.library, choice.reason


def test_the_first_library_wins() -> None:
    assert chosen(KernelRegistry([library("a"), library("b")]), INTS) == ("a", "first in the order, before b")
    assert chosen(KernelRegistry([library("b")]), INTS) == ("b", "the only one")


def test_a_partial_kernel_wins_where_its_key_fits() -> None:
    registry = KernelRegistry([library("a"), library("b", fallback=False, partial=True)])
    assert chosen(registry, FLOATS) == ("b", "made for these dtypes and dim orders")
    assert chosen(registry, INTS) == ("a", "the only one")


def test_among_partial_kernels_the_order_decides() -> None:
    registry = KernelRegistry([library("a", partial=True), library("b", partial=True)])
    assert chosen(registry, FLOATS)[0] == "a"


def test_a_partial_kernel_alone_is_no_fallback() -> None:
    registry = KernelRegistry([library("a", fallback=False, partial=True)])
    assert registry.choose(OP, INTS) is None
    with pytest.raises(OperatorMissing, match=r"aten::neg\.out on v1/3;0,1\|3;0,1"):
        registry.lookup(OP, INTS)
    assert kernel_key_text(INTS) == "v1/3;0,1|3;0,1"


def test_an_order_for_one_operator() -> None:
    a, b = library("a"), library("b")
    for one in (a, b):
        one.kernel("aten::abs.out")(lambda context, self, out: None)
    registry = KernelRegistry.of({"*": [a, b], OP: [b]}, PluginRegistry())
    assert chosen(registry, INTS) == ("b", "the only one")
    assert chosen(registry, INTS, "aten::abs.out") == ("a", "first in the order, before b")
    assert registry.libraries == (a, b)


def test_orders_by_operator_leave_the_others_to_what_is_installed() -> None:
    plugins = PluginRegistry()
    plugins.register("kernels", "installed", library("installed"))
    plugins.register("kernels", "waiting", library("waiting", on_request=True))
    assert chosen(KernelRegistry.of({"aten::abs.out": ["waiting"]}, plugins), INTS) == ("installed", "the only one")


def test_a_library_on_request_is_asked_only_by_name() -> None:
    plugins = PluginRegistry()
    plugins.register("kernels", "waiting", library("waiting", on_request=True))
    assert KernelRegistry.of(None, plugins).libraries == ()
    assert chosen(KernelRegistry.of(["waiting"], plugins), INTS) == ("waiting", "the only one")


def test_a_name_that_is_not_installed() -> None:
    with pytest.raises(PluginNotFound, match="nowhere"):
        KernelRegistry.of({OP: ["nowhere"]}, PluginRegistry())


def test_the_same_kernel_twice() -> None:
    made = library("a")
    with pytest.raises(KernelAlreadyRegistered, match="twice"):
        made.kernel(OP)(lambda context, self, out: None)
