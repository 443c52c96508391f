"""Which kernel of which library a call gets, and why."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from delegraph.errors import (
    InvalidArgument,
    KernelAlreadyRegistered,
    OperatorMissing,
    PluginConflict,
    PluginError,
    PluginLoadError,
    PluginNotFound,
    PluginUnavailable,
)
from delegraph.interfaces import KernelLibrary, kernel_key_text
from delegraph.plugins import PluginWarning
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.schema import ScalarType
from delegraph.runtime.resolution.kernels import KernelRegistry

OP = "aten::neg.out"
FLOATS = ((ScalarType.FLOAT, (0, 1)), (ScalarType.FLOAT, (0, 1)))
INTS = ((ScalarType.INT, (0, 1)), (ScalarType.INT, (0, 1)))


def library(name: str, *, fallback: bool = True, partial: bool = False, on_request: bool = False) -> KernelLibrary:
    result = KernelLibrary(name)
    result.on_request = on_request
    if fallback:
        result.kernel(OP)(lambda context, self, out: None)
    if partial:
        orders = [(0, 1), (0, 1)]
        result.kernel(OP, dtypes=["float32"] * 2, dim_orders=orders)(lambda context, self, out: None)
    return result


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


@pytest.mark.parametrize("key", [{"dtypes": ["float32"]}, {"dim_orders": [(0, 1)]}])
def test_half_a_key_makes_no_partial_kernel(key: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{OP}: a partial kernel names both dtypes and dim_orders"):
        KernelLibrary("a").kernel(OP, **key)


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
    for each in (a, b):
        each.kernel("aten::abs.out")(lambda context, self, out: None)
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


# ---- installed libraries have no order -----------------------------------------------------------------


def installed(*libraries: KernelLibrary) -> PluginRegistry:
    plugins = PluginRegistry()
    for each in libraries:
        plugins.register("kernels", each.name, each)
    return plugins


def test_two_installed_libraries_are_not_chosen_between() -> None:
    """The name of its entry point must not make a library replace another's kernels."""
    registry = KernelRegistry.of(None, installed(library("portable"), library("aaa")))
    with pytest.raises(PluginConflict) as caught:
        registry.lookup(OP, INTS)
    assert str(caught.value) == (
        "the kernel libraries aaa (of in-process 0) and portable (of in-process 0) both have kernels for these"
        " operators, and no order says which goes first:\n  aten::neg.out\n"
        '  what to do: give an order, kernels=["aaa", "portable"] or the other way round (on the command line'
        ' --kernels aaa,portable); for one operator, kernels={"aten::neg.out": ["aaa"]}; or uninstall one'
    )
    choice = registry.choose(OP, INTS)
    assert choice is not None
    assert [rival.name for rival in choice.rivals] == ["aaa", "portable"]
    assert choice.reason == "aaa and portable have it, and no order says which goes first"


def test_the_remedies_of_a_conflict_help() -> None:
    plugins = installed(library("portable"), library("aaa"))
    assert chosen(KernelRegistry.of(["aaa", "portable"], plugins), INTS)[0] == "aaa"
    assert chosen(KernelRegistry.of(["portable", "aaa"], plugins), INTS)[0] == "portable"
    assert chosen(KernelRegistry.of({OP: ["aaa"]}, plugins), INTS)[0] == "aaa"


def test_a_long_conflict_is_cut_short() -> None:
    a, b = library("a"), library("b")
    ops = [f"aten::op{number}.out" for number in range(10)]
    for each in (a, b):
        for op in ops:
            each.kernel(op)(lambda context, self, out: None)
    with pytest.raises(PluginConflict, match=r"op7\.out\n  and 2 more\n  what to do"):
        KernelRegistry.of(None, installed(a, b)).resolve([(op, INTS) for op in ops])


def test_a_partial_kernel_of_an_installed_library_is_no_conflict() -> None:
    registry = KernelRegistry.of(None, installed(library("portable"), library("fast", fallback=False, partial=True)))
    assert chosen(registry, FLOATS) == ("fast", "made for these dtypes and dim orders")
    assert chosen(registry, INTS) == ("portable", "the only one")
    assert registry.lookup(OP, FLOATS).library == "fast"


def test_two_partial_kernels_of_installed_libraries_are() -> None:
    registry = KernelRegistry.of(None, installed(library("a", partial=True), library("b", partial=True)))
    with pytest.raises(PluginConflict, match=r"the kernel libraries a .* and b"):
        registry.lookup(OP, FLOATS)


def test_an_operator_that_nobody_needs_is_no_conflict() -> None:
    a, b = library("a"), library("b")
    a.kernel("aten::abs.out")(lambda context, self, out: None)
    assert KernelRegistry.of(None, installed(a, b)).lookup("aten::abs.out", INTS).library == "a"


def test_a_library_that_derives_from_nothing() -> None:
    class Bare:
        def lookup(self, op: str, key: Any) -> Any:
            return sound.lookup(op, key)

        def operator_names(self) -> frozenset[str]:
            return sound.operator_names()

    sound = library("bare")
    plugins = PluginRegistry()
    plugins.register("kernels", "bare", Bare)
    assert chosen(KernelRegistry.of(None, plugins), INTS) == ("bare", "the only one")
    with pytest.raises(OperatorMissing, match=r"in the kernel libraries asked \(bare\)"):
        KernelRegistry.of(None, plugins).lookup("aten::abs.out", INTS)


# ---- libraries that cannot be loaded -------------------------------------------------------------------


class Broken(PluginRegistry):
    """Also offers `fast`, whose import fails with `error`."""

    def __init__(self, error: PluginError) -> None:
        super().__init__()
        self.error = error
        self.register("kernels", "portable", library("portable"))

    def names(self, group: str) -> tuple[str, ...]:
        return ("fast", *super().names(group))

    def load(self, group: str, name: str) -> Any:
        if name == "fast":
            raise self.error
        return super().load(group, name)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (PluginLoadError("cannot load plug-in: DELEGRAPH_DISABLE_PLUGINS=kernels:fast goes without it"), ""),
        (PluginConflict("2 offer it"), "; DELEGRAPH_DISABLE_PLUGINS=kernels:fast goes without it"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_not_left_out_silently(error: PluginError, end: str) -> None:
    plugins = Broken(error)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):  # two methods
            assert KernelRegistry.of(None, plugins).lookup(OP, INTS).library == "portable"
    (warning,) = caught
    assert warning.category is PluginWarning
    assert str(warning.message) == f"going on without the installed kernel library 'fast': {error}{end}"


def test_nobody_is_warned_who_does_without_it() -> None:
    unavailable = PluginLoadError("cannot load plug-in")
    unavailable.__cause__ = PluginUnavailable("pip install acme[fast]")
    broken = Broken(PluginConflict("2 offer it"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelRegistry.of(None, Broken(unavailable)).lookup(OP, INTS)
        KernelRegistry.of(["portable"], broken).lookup(OP, INTS)
        KernelRegistry.of({OP: ["portable"]}, broken).lookup(OP, INTS)
        KernelRegistry.of(None, broken).resolve([])
        with pytest.raises(
            OperatorMissing, match=r"in the kernel libraries asked \(portable\)(?s:.)*loaded: 2 offer it"
        ):
            KernelRegistry.of(None, broken).lookup("aten::abs.out", INTS)


def test_a_string_for_a_list() -> None:
    with pytest.raises(InvalidArgument, match=r'kernels is a list of kernel libraries, kernels=\["portable"\], not'):
        KernelRegistry.of("portable", PluginRegistry())
    with pytest.raises(InvalidArgument, match=r'kernels is a list of kernel libraries, kernels=\["a"\], not'):
        KernelRegistry.of({OP: "a"}, PluginRegistry())


def test_a_name_that_is_not_installed() -> None:
    with pytest.raises(PluginNotFound, match="nowhere"):
        KernelRegistry.of({OP: ["nowhere"]}, PluginRegistry())


def test_the_same_kernel_twice() -> None:
    first = library("a")
    with pytest.raises(KernelAlreadyRegistered, match="twice"):
        first.kernel(OP)(lambda context, self, out: None)
