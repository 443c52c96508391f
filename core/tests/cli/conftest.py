"""A program with one of everything that `run` and `inspect` tell of, and kernels and a backend to run it on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.cli import main
from delegraph.interfaces import BlobStamp
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import write_program
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Chain,
    CompileSpec,
    DelegateCall,
    ExecutionPlan,
    Instruction,
    Int,
    KernelCall,
    NamedData,
    Null,
    Operator,
    Program,
    ScalarType,
    Tensor,
    TensorShapeDynamism,
    Value,
)
from delegraph.runtime import BackendInterface, KernelLibrary

STAMP = BlobStamp("Negator", "acme", "1.2", 3)


def tensor(
    *sizes: int, at: int, dtype: ScalarType = ScalarType.FLOAT, planned: bool = True, dynamic: bool = False
) -> Tensor:
    return Tensor(
        dtype,
        sizes,
        tuple(range(len(sizes))),
        allocation_info=AllocationDetails(1, at) if planned else None,
        shape_dynamism=TensorShapeDynamism.DYNAMIC_BOUND if dynamic else TensorShapeDynamism.STATIC,
    )


def plan(
    name: str,
    values: Sequence[Value],
    inputs: Sequence[int],
    outputs: Sequence[int],
    instructions: Sequence[Instruction],
    operators: Sequence[str] = (),
    delegates: Sequence[BackendDelegate] = (),
    memory: int = 256,
) -> ExecutionPlan:
    return ExecutionPlan(
        name,
        tuple(values),
        tuple(inputs),
        tuple(outputs),
        (Chain(tuple(instructions)),),
        tuple(Operator(*operator.split(".")) for operator in operators),
        tuple(delegates),
        (0, memory),
    )


def forward() -> ExecutionPlan:
    """-(x + weight), x float32[4]; the second argument was None and the third 2 when the model was exported."""
    weight = Tensor(ScalarType.FLOAT, (4,), (0,), data_buffer_idx=1)
    values = (tensor(4, at=0), weight, Int(1), tensor(4, at=64), tensor(4, at=128), Null(), Int(2))
    delegate = BackendDelegate("Negator", 0, (CompileSpec("speed", b"7"), STAMP.to_compile_spec()))
    instructions = (KernelCall(0, (0, 1, 2, 3, 3)), DelegateCall(0, (3, 4)))
    return plan("forward", values, (0, 5, 6), (4, 6), instructions, ["aten::add.out"], [delegate])


def dynamic() -> ExecutionPlan:
    """x + y, both float32 of up to [4, 8], all memory the caller's."""
    x, y, out = (tensor(4, 8, at=0, planned=False, dynamic=True) for _ in range(3))
    return plan("dynamic", (x, y, Int(1), out), (0, 1), (3,), [KernelCall(0, (0, 1, 2, 3, 3))], ["aten::add.out"])


def identities() -> ExecutionPlan:
    """Inputs of several dtypes, given back, and None."""
    dtypes = (ScalarType.LONG, ScalarType.BYTE, ScalarType.BOOL, ScalarType.BFLOAT16, ScalarType.FLOAT8E5M2)
    values = [tensor(16, at=128 * index, dtype=dtype) for index, dtype in enumerate(dtypes)]
    return plan("identities", [Null(), *values], range(1, 6), range(6), [], memory=640)


def program() -> Program:
    weight = np.array([1, 2, 3, 4], np.float32).tobytes()
    shared = {"shared.table": NamedData(bytes(24))}
    plans = (dynamic(), forward(), identities())
    return Program(plans, constants=(b"", weight), delegate_data=(b"negate",), named_data=shared)


def library(name: str = "numpy") -> KernelLibrary:
    kernels = KernelLibrary(name)

    @kernels.kernel("aten::add.out")
    def add_out(context: Any, a: Any, b: Any, alpha: Any, out: Any) -> None:
        np.add(a, b, context.resize(out, a.shape))

    return kernels


class Negator(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return context.runtime_specs.get("factor", 1)

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        np.multiply(args[0], -handle, args[1])


@pytest.fixture(autouse=True)
def installed() -> Iterator[PluginRegistry]:
    """The plug-ins of the tests, whatever is installed on this machine."""
    registry = PluginRegistry()
    registry.register("kernels", "numpy", library())
    registry.register("backends", "Negator", Negator())
    with use_registry(registry):
        yield registry


@pytest.fixture
def pte(tmp_path: Path) -> str:
    path = tmp_path / "m.pte"
    write_program(program(), path)
    return str(path)


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command that succeeds; what it printed, parsed if it is `--json`."""

    def tell(*words: str) -> Any:
        code = main(words)
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out) if "--json" in words else out

    return tell


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails with `code`; its message."""

    def refuse(*words: str, code: int) -> str:
        try:
            got = main(words)
        except SystemExit as exit:
            got = exit.code
        out, err = capsys.readouterr()
        assert (got, out) == (code, "")
        return err

    return refuse
