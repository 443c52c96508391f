"""What the bridge says where ExecuTorch is not installed, and what of it needs neither that nor torch."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

import delegraph
from delegraph.errors import PluginLoadError
from delegraph.plugins import default_registry
from delegraph.program import ScalarType, deserialize_program, to_text
from delegraph.program.schema import CompileSpec
from delegraph_executorch.bridge.imports import BACKENDS
from delegraph_executorch.bridge.wrapper import Integer, TensorParameter, wrapped

without = pytest.mark.skipif(find_spec("executorch") is not None, reason="ExecuTorch is installed here")


@without
def test_lowering_says_what_to_install() -> None:
    with pytest.raises(
        PluginLoadError, match=r'not installed; what to do: pip install "delegraph-executorch\[bridge\]"'
    ):
        delegraph.lower(torch.nn.ReLU(), (torch.randn(2),), backends=["executorch:xnnpack"])


@without
def test_a_backend_says_why_it_is_not_available() -> None:
    answer = default_registry().load("backends", "XnnpackBackend").is_available()
    assert not answer
    assert (answer.reason, answer.fix) == (
        "ExecuTorch, whose runtime runs its blobs, is not installed",
        'pip install "delegraph-executorch[bridge]"',
    )


def test_nobody_who_named_no_backend_is_told_of_them() -> None:
    report = delegraph.lower(torch.nn.ReLU(), (torch.randn(2),)).report
    assert not any("executorch:" in suggestion.partitioner for suggestion in report.suggestions)


def test_every_backend_has_both_halves() -> None:
    plugins = default_registry()
    for backend_id in BACKENDS:
        assert plugins.load("lowerings", backend_id).__name__ == backend_id
        assert plugins.load("backends", backend_id).backend_id == backend_id


def test_the_runtime_half_is_imported_without_torch() -> None:
    code = (
        "import sys; from delegraph.plugins import default_registry;"
        "default_registry().load('backends', 'XnnpackBackend');"
        "print('torch' in sys.modules, 'executorch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False", "False"]


def test_the_program_around_a_blob() -> None:
    parameters = [
        TensorParameter(ScalarType.FLOAT, (2, 3), (0, 1)),
        Integer(),
        2.5,
        None,
        TensorParameter(ScalarType.FLOAT, (4, 3), (0, 1), dynamic=True),
    ]
    data = {"mine": b"named by the blob", "other": b"not"}
    program = deserialize_program(wrapped("Npu", b"a mine blob", [CompileSpec("k", b"v")], parameters, data))
    assert list(program.named_data) == ["mine"]
    plan = program.execution_plan[0]
    assert len(plan.inputs) == 3  # two tensors, and the integer as one
    assert len(plan.outputs) == 2  # the sizes of the dynamic one
    assert plan.delegates[0].compile_specs == (CompileSpec("k", b"v"),)
    text = to_text(program).partition("delegate 0 Npu")
    assert "_local_scalar_dense" in text[0] and "sym_size" in text[2] and "sym_size" not in text[0]


def test_all_named_data_go_along_where_the_blob_names_none() -> None:
    data = {"first": b"1", "second": b"2"}
    program = deserialize_program(wrapped("Npu", b"a blob", [], [True, "text"], data))
    assert sorted(program.named_data) == ["first", "second"]
