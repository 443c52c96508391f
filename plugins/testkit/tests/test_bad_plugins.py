"""Sound kernel libraries, partitioners and quantizers pass; what is wrong with others is caught by the check for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from plugins.testkit.tests.test_bad_backends import MAKES, strange

from delegraph_testkit.outcomes import Level, Outcome
from delegraph_testkit.subject import Kind

Install = Callable[..., Any]
pytestmark = pytest.mark.conformance

# ruff: noqa: E501 - what a fault is written in
# ---- kernel libraries ----------------------------------------------------------------------------------

MULTIPLIES = "    np.multiply(self, other, out=out)\n"
PREPARED = "    return lambda: np.add(self, other * out.dtype.type(alpha), out=out)\n"

KERNELS = [
    (
        "loads/loads_with_torch",
        ('KernelLibrary("calc")', 'KernelLibrary("calc").nothing'),
        "has no attribute 'nothing'",
    ),
    (
        "contract/outputs_are_written",  # the commonest slip
        (MULTIPLIES, "    return np.multiply(self, other)\n"),
        "it did not write its argument",
    ),
    (
        "contract/outputs_are_written",
        (MULTIPLIES, "    out = np.multiply(self, other)\n"),
        "it did not write its argument",
    ),
    (
        "contract/outputs_are_written",
        (MULTIPLIES, "    out.reshape(-1)[1:] = np.multiply(self, other).reshape(-1)[1:]\n"),
        "it left 1 of",
    ),
    (
        "contract/inputs_are_left_alone",
        (MULTIPLIES, "    np.multiply(self, other, out=self)\n    out[...] = self\n"),
        "which is an input: others read it too",
    ),
    ("contract/prepared_calls_are_the_same", (PREPARED, "    return lambda: None\n"), "elements are wrong"),
    (
        "contract/prepared_calls_are_the_same",  # what was read when the method was loaded
        (PREPARED, "    first = self.copy()\n    return lambda: np.add(first, other, out=out)\n"),
        "elements are wrong",
    ),
    (
        "contract/threads_are_independent",  # what belongs to a call is kept in the module
        (
            PREPARED,
            "    def run():\n        global kept\n        kept = np.add(self, other)\n"
            "        __import__('time').sleep(1e-4)\n        out[...] = kept\n    return run\n",
        ),
        "elements are wrong",
    ),
    (
        "contract/runs_while_traced",
        (PREPARED, "    return None\n"),
        "",  # no fault: a library need not prepare calls
    ),
    (
        "operators/neg/float32",
        ("np.negative(self, out=context.resize(out, self.shape))", "context.resize(out, self.shape)[...] = abs(self)"),
        "elements are wrong",
    ),
    (
        "operators/mul/float32",
        ("aten::mul.out", "aten::fmod.Tensor_out"),
        "is claimed for float32, and not taken whole",
    ),
]


@pytest.mark.parametrize(
    "check",
    [
        "loads/loads_with_torch",
        "loads/loads_without_torch",
        "contract/outputs_are_written",
        "contract/inputs_are_left_alone",
        "contract/prepared_calls_are_the_same",
        "contract/runs_while_traced",
        "contract/threads_are_independent",
        "operators/neg/float32",
        "operators/mul/float32",
    ],
)
def test_a_sound_library(install: Install, check: str) -> None:
    claims = {"operators": {"neg": ["float32"], "mul": ["float32"]}}
    programs = ("arithmetic",) if check.startswith("contract") else None
    result = install().result(check, Kind.KERNELS, programs, **claims)
    assert (result.outcome, result.detail) == (Outcome.PASSED, "")


@pytest.mark.parametrize(("check", "change", "message"), KERNELS)
def test_a_fault_of_a_library(install: Install, check: str, change: Any, message: str) -> None:
    programs = ("arithmetic",) if check.startswith("contract") else None
    result = install(kernels=change).result(check, Kind.KERNELS, programs, operators={"mul": ["float32"]})
    assert result.outcome is (Outcome.FAILED if message else Outcome.PASSED)
    assert message in result.detail


def test_a_library_that_needs_torch_is_found_out(install: Install) -> None:
    calc = install(
        kernels=(
            "import numpy as np\n",
            "import numpy as np\n\ntry:\n    import torch\nexcept ImportError:\n    pass\n",
        )
    )
    result = calc.isolated("loads/loads_without_torch", kind=Kind.KERNELS)
    assert result.outcome is Outcome.FAILED
    assert "torch" in result.detail


def test_a_library_that_has_nothing_of_what_is_tried(install: Install) -> None:
    """It names models of its own in its claims."""
    result = install(kernels=('"aten::', '"acme::')).result(
        "contract/outputs_are_written", Kind.KERNELS, ("arithmetic", "constants")
    )
    assert result.outcome is Outcome.FAILED
    assert "it takes nothing of the kit's programs" in result.detail


# ---- partitioners --------------------------------------------------------------------------------------

RANDOM = 'if __import__("random").random() < 0.5: node.meta["delegation_tag"] = "all"'

PARTITIONERS = [
    ("loads/loads_with_torch", {"aot": (MAKES, "def calc_partitioner():\n    return None\n\n\ndef unused(minimum_nodes):\n")},
     "its factory made None"),
    ("loads/unknown_options_are_refused", {"aot": (MAKES, MAKES.replace("*, ", "*, precision=0, ").replace("1)", "1, **o)"))},
     "is taken without a word"),
    ("partitions/nothing_but_tags_is_changed", strange("node.args = node.args[::-1]"), "it changed the graph"),
    ("partitions/nothing_but_tags_is_changed", strange('node.kwargs = {"alpha": 2}'), "it changed the graph"),
    ("partitions/lowering_is_repeatable", strange(RANDOM), "is two different files"),
    ("partitions/what_is_left_has_a_reason", strange("pass"), "no reason is given for"),
    ("partitions/diamond_is_cut", strange('node.meta["delegation_tag"] = "all"'), "InvalidPartition"),
    ("partitions/diamond_is_cut", strange('node.meta["delegation_tag"] = "unknown"'), "InvalidPartition"),
    ("models/dynamic_arithmetic", {"aot": ("    if node.target not in SYMBOLS:\n", "    if True:\n")}, "dynamic_shapes is claimed"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "message"), PARTITIONERS)
def test_a_fault_of_a_partitioner(install: Install, check: str, changes: Any, message: str) -> None:
    program_of = {"what_is_left_has_a_reason": "perceptron", "diamond_is_cut": "diamond"}
    programs = (program_of.get(check.partition("/")[2], "arithmetic"),) if check.startswith("partitions/") else None
    result = install(**changes).result(check, Kind.PARTITIONER, programs, features=["dynamic_shapes"])
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


@pytest.mark.parametrize("check", sorted({check for check, _, _ in PARTITIONERS}))
def test_a_sound_partitioner(install: Install, check: str) -> None:
    programs = ("diamond",) if check.startswith("partitions/") else None
    result = install().result(check, Kind.PARTITIONER, programs, features=["dynamic_shapes"])
    assert (result.outcome, result.detail) == (Outcome.PASSED, "")


# ---- quantizers ----------------------------------------------------------------------------------------

WEIGHTS = "value, weights = activation_spec(self.recipe), weight_spec(self.recipe)\n"

QUANTIZERS = [
    ("loads/loads_with_torch", ("    def validate(", "    def validated("), "it has no validate(model)"),
    ("loads/unknown_options_are_refused", ("*, recipe=\"int8\"", "*, recipe=\"int8\", **others"), "is taken without a word"),
    (
        "contract/annotates_and_keeps_results/perceptron",  # two steps for all weights
        (WEIGHTS, f"{WEIGHTS}        weights = __import__('dataclasses').replace(weights, quant_min=-1, quant_max=0)\n"),
        "dB over the noise, and 10 is the least",
    ),
    (
        "contract/annotates_and_keeps_results/perceptron",
        (WEIGHTS, f"{WEIGHTS}        next(n for n in model.graph.nodes if 'relu' in str(n.target)).target = "
                  "torch.ops.aten.neg.default\n"),
        "dB over the noise, and 10 is the least",
    ),
    (
        "contract/quantizing_is_repeatable/perceptron",
        (WEIGHTS, f"{WEIGHTS}        global turn\n        turn = globals().get('turn', 0) + 1\n"
                  "        weights = __import__('dataclasses').replace(weights, quant_min=-turn - 9, quant_max=turn + 9)\n"),
        "quantized twice is two different models",
    ),
    (
        "contract/what_is_quantized_runs/perceptron",
        (WEIGHTS, f"{WEIGHTS}        raise RuntimeError('no calibration')\n"),
        "no calibration",
    ),
    (
        "contract/what_is_quantized_runs/perceptron",
        ("    def validate(self, model):\n        pass", "    def validate(self, model):\n        raise ValueError('too much')"),
        "too much",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("check", "change", "message"), QUANTIZERS)
def test_a_fault_of_a_quantizer(install: Install, check: str, change: Any, message: str) -> None:
    result = install(quantizer=change).result(check, Kind.QUANTIZER)
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


@pytest.mark.parametrize("check", sorted({check for check, _, _ in QUANTIZERS}))
def test_a_sound_quantizer(install: Install, check: str) -> None:
    assert install().result(check, Kind.QUANTIZER).outcome is Outcome.PASSED


def test_a_quantizer_that_leaves_everything_is_told(install: Install) -> None:
    result = install(quantizer=("aten.linear.default", "aten.tanh.default")).result(
        "contract/annotates_and_keeps_results/image", Kind.QUANTIZER
    )
    assert (result.outcome, result.detail) == (Outcome.DECLINED, "it leaves all of the model in float")


def test_the_figure_is_in_the_report(install: Install) -> None:
    result = install().result("contract/annotates_and_keeps_results/perceptron", Kind.QUANTIZER)
    assert result.level is Level.CONTRACT
    assert result.detail.startswith("perceptron: ") and result.detail.endswith(" dB")
