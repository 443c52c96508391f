"""Program -> ProgramNeeds: the operators, kernel keys, backends and dtypes without which it cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from delegraph.interfaces.kernel import KernelKey, TensorMeta
from delegraph.interfaces.stamp import BlobStamp, stamps_by_backend
from delegraph.program.kernel_calls import kernel_key
from delegraph.program.prim_op_names import PRIM_OPS
from delegraph.program.schema import (
    ExecutionPlan,
    OptionalTensorList,
    Program,
    ScalarType,
    Tensor,
    TensorList,
    Value,
)
from delegraph.program.walk import external_names, kernel_calls, tensors
from delegraph.program.weights_origin import PROGRAM_KEY

__all__ = ["OperatorCall", "ProgramNeeds", "needs_of"]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator on arguments of certain dtypes and dim orders.

    A kernel is looked up by `key`. `values` is the same as ExecuTorch's build tools count it: the return slot too, and
    for a list of tensors its first (`codegen/tools/selective_build.cpp`).
    """

    operator: str
    key: KernelKey
    values: tuple[TensorMeta, ...]

    @property
    def is_prim(self) -> bool:
        """Whether the runtime runs it by itself, without a kernel of a library."""
        return self.operator in PRIM_OPS


@dataclass(frozen=True, slots=True)
class ProgramNeeds:
    """The needs of one program, over all its methods, and the alternatives of their delegates.

    `operators` are those that it lists, called or not. `backends` are ids with the stamps of their blobs.
    """

    path: str
    operators: frozenset[str]
    calls: frozenset[OperatorCall]
    backends: dict[str, frozenset[BlobStamp]]
    dtypes: frozenset[ScalarType]
    has_external_data: bool


def needs_of(path: str, program: Program) -> ProgramNeeds:
    """The needs of `program`, which was read from `path`."""
    plans = program.execution_plan
    return ProgramNeeds(
        path,
        operators=frozenset(str(operator) for plan in plans for operator in plan.operators),
        calls=frozenset(call for plan in plans for call in _calls(plan)),
        backends={backend: frozenset(stamps) for backend, stamps in sorted(stamps_by_backend(program).items())},
        dtypes=frozenset(tensor.scalar_type for tensor in tensors(program)),
        has_external_data=bool(external_names(program)) or PROGRAM_KEY in program.named_data,
    )


def _calls(plan: ExecutionPlan) -> Iterator[OperatorCall]:
    for _, operator, call in kernel_calls(plan):
        metas = (_meta(plan.values[index], plan) for index in call.args)
        counted = tuple(meta for meta in metas if meta is not None)
        yield OperatorCall(operator, kernel_key(call.args, plan.values), counted)


def _meta(value: Value, plan: ExecutionPlan) -> TensorMeta | None:
    if isinstance(value, TensorList | OptionalTensorList):
        items = (plan.values[index] for index in value.items if index >= 0)
        value = next((item for item in items if isinstance(item, Tensor)), value)
    return (value.scalar_type, value.dim_order) if isinstance(value, Tensor) else None
