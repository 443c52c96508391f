"""The library as the registry meets it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from delegraph.errors import OperatorMissing
from delegraph.interfaces import KernelLibrary
from delegraph.plugins import default_registry
from delegraph.runtime import KernelRegistry
from delegraph_aten import AtenLibrary, library


def _prints(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_torch_is_imported_by_the_first_lookup() -> None:
    assert (
        _prints(
            "import sys; from delegraph_aten import library; before = 'torch' in sys.modules;"
            "library.lookup('aten::add.out', ()); print(before, 'torch' in sys.modules)"
        )
        == "False True"
    )


def test_the_quantized_operators_are_imported_when_one_is_asked_for() -> None:
    module = "torch.ao.quantization.fx._decomposed"
    assert (
        _prints(
            f"import sys; from delegraph_aten import library; library.lookup('aten::add.out', ());"
            f"before = {module!r} in sys.modules;"
            "kernel = library.lookup('quantized_decomposed::quantize_per_tensor.out', ());"
            f"print(before, {module!r} in sys.modules, kernel is not None)"
        )
        == "False True True"
    )


def test_it_is_installed_but_waits_to_be_named() -> None:
    plugins = default_registry()
    assert plugins.load("delegraph.kernels", "aten") is library
    assert library not in KernelRegistry.of(None, plugins).libraries
    assert KernelRegistry.of(["aten"], plugins).lookup("aten::add.out", ()).library == "aten"


def test_every_name_that_it_gives_it_has() -> None:
    names = library.operator_names()
    assert [name for name in names if library.lookup(name, ()) is None] == []
    assert {kernel.op for kernel in library} == names


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("aten::add.out", "an out variant"),
        ("aten::topk.values", "several outs"),
        ("aten::unbind_copy.int_out", "a list of outs"),
        ("aten::copy_", "in place, the default overload"),
        ("aten::_local_scalar_dense", "a scalar"),
        ("dim_order_ops::_to_dim_order_copy.out", "ExecuTorch's"),
    ],
)
def test_what_can_stand_in_programs_is_found(name: str, what: str) -> None:
    assert name in library.operator_names(), what


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("aten::add.Tensor", "it gives a new tensor"),
        ("aten::permute", "it gives a view"),
        ("aten::add.no_such_overload", "no overload"),
        ("aten::no_such_operator.out", "no operator"),
        ("nobody::knows.out", "no namespace"),
        ("aten::name", "an attribute of torch.ops, no operator"),
        ("nonsense", "no name of an operator"),
    ],
)
def test_what_cannot_is_left_to_other_libraries(name: str, why: str) -> None:
    assert name not in library.operator_names(), why
    mine = KernelLibrary("mine")
    mine.kernel(name)(lambda context, *args: None)
    assert KernelRegistry([library, mine]).lookup(name, ()).library == "mine"
    with pytest.raises(OperatorMissing, match=r"asked \(aten\)"):
        KernelRegistry([library]).lookup(name, ())


def test_an_operator_defined_later_is_found_then() -> None:
    fresh = AtenLibrary("aten")
    assert fresh.lookup("aten_later::double.out", ()) is None
    with torch.library._scoped_library("aten_later", "DEF") as definitions:
        definitions.define("double.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)")
        assert fresh.lookup("aten_later::double.out", ()) is not None
