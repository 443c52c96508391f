"""`Case` -> the bytes of its program, the operators that it calls, and what eager torch and the runtime here give."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from tests.operators.case import Case
from torch.utils import _pytree as pytree

import delegraph
from delegraph.aot import EdgeCompileConfig, ExecutorchBackendConfig, LoweringConfig
from delegraph.program import serialize_program
from delegraph.program.schema import Operator, Program
from delegraph.runtime import Runtime
from delegraph.runtime.values.tensors import to_torch

Outputs = list[list[Any]]
"""The outputs of each call."""


class _Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass(frozen=True)
class Emitted:
    """A finished program and the names of the operators that it calls."""

    data: bytes
    operators: frozenset[str]


def emit(case: Case) -> Emitted:
    """Lower without delegates; views stay calls and nothing is computed ahead of time, so that every call is made."""
    module = _module(case)
    exported = torch.export.export(module, copy.deepcopy(case.calls[0]), dynamic_shapes=_shapes(case))
    config = LoweringConfig(
        edge=EdgeCompileConfig(preserve_ops=case.keep),
        executorch=ExecutorchBackendConfig(
            remove_view_copy=_DYNAMIC_VIEW in case.operator, do_const_prop=False, check_kernels=not case.renamed
        ),
    )
    program = _renamed(delegraph.lower(exported, config=config).program.executorch_program, case.renamed)
    program = case.edit(program) if case.edit else program
    operators = {str(operator) for plan in program.execution_plan for operator in plan.operators}
    return Emitted(serialize_program(program), frozenset(operators))


_DYNAMIC_VIEW: Final = "et_view"
"""The one operator that is a view: it appears only where views may share memory."""


def _shapes(case: Case) -> Any:
    """torch.export wants them by argument of `forward`, which takes them all as one."""
    return None if case.dynamic_shapes is None else (tuple(case.dynamic_shapes),)


def _module(case: Case) -> torch.nn.Module:
    return case.function if isinstance(case.function, torch.nn.Module) else _Function(case.function)


def _renamed(program: Program, names: Mapping[str, str]) -> Program:
    if not names:
        return program
    plans = [
        replace(plan, operators=tuple(_operator(names.get(str(one), str(one))) for one in plan.operators))
        for plan in program.execution_plan
    ]
    return replace(program, execution_plan=tuple(plans))


def _operator(name: str) -> Operator:
    base, _, overload = name.partition(".")
    return Operator(base, overload)


def eager(case: Case) -> Outputs:
    """What torch gives, or what `case.expected` says."""
    module = case.expected or copy.deepcopy(_module(case))
    with torch.no_grad():
        return [pytree.tree_leaves(module(*copy.deepcopy(call))) for call in case.calls]


def run_here(data: bytes, case: Case) -> Outputs:
    """What the runtime and the kernels of this project give. Programs without tensor inputs give arrays."""
    method = Runtime.get().load_program(data).load_method("forward")
    return [to_torch(method.execute(list(call))) for call in case.calls]


def difference(got: Outputs, wanted: Outputs) -> str | None:
    """In what the outputs differ, or None: dtype, shape, and values within torch.testing's tolerances."""
    for call, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if len(a) != len(b):
            return f"call {call}: {len(a)} outputs, not {len(b)}"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            try:
                torch.testing.assert_close(x, y, equal_nan=True, check_stride=False)
            except AssertionError as error:
                return f"call {call}, output {i}: {error}"
    return None
