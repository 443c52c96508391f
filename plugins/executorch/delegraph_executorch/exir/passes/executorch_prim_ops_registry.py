"""The runtime's operators on numbers (ExecuTorch `kernels/prim_ops`), and what stands for them before emission."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from delegraph.aot import exir_ops
from delegraph_executorch.bridge.imports import let_wheel_define_operators

# Where ExecuTorch's wheel is installed too, its registration is the one that stands: it could not be imported after
# another one.


_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "eq", "gt", "lt", "ge", "le", "neg")
    },
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
    **{name: getattr(torch, name) for name in ("sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite")},
}
"""The name in `executorch_prim` -> what programs call before they are emitted, which computes it as well."""

_PARAMETERS: Final = dict.fromkeys(("neg", "ceil", "round", "trunc", "sym_float", "sym_int", "sym_not"), 1) | {
    "sym_ite": 3
}
_TRUTHS: Final = frozenset({"eq", "gt", "lt", "ge", "le", "sym_not"})


def _schema(name: str) -> str:
    if name == "mod":
        return "mod.Scalar(SymInt a, SymInt b) -> SymInt"
    parameters = ", ".join(f"Scalar {letter}" for letter in "abc"[: _PARAMETERS.get(name, 2)])
    return f"{name}.Scalar({parameters}) -> {'bool' if name in _TRUTHS else 'Scalar'}"


def _register() -> torch.library.Library | None:
    let_wheel_define_operators()
    if hasattr(torch.ops.executorch_prim, "add"):
        return None
    library = torch.library.Library("executorch_prim", "FRAGMENT")
    for name, function in _OPERATORS.items():
        library.define(_schema(name))
        library.impl(f"{name}.Scalar", function, "CompositeExplicitAutograd")
    return library


_LIBRARY: Final = _register()  # torch unregisters the operators when the library object goes

_PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS: Final[dict[Any, Any]] = {
    python: getattr(exir_ops.backend.executorch_prim, name).Scalar for name, python in _OPERATORS.items()
}
_EXECUTORCH_SYM_OPS: Final[frozenset[Any]] = frozenset(
    {
        *_PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS.values(),
        torch.ops.aten.sym_stride.int,
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch.ops.aten.sym_constrain_range.default,
    }
)


def is_sym_op(target: Any) -> bool:
    """Whether `target` computes with numbers, or between numbers and tensors."""
    return target in _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS or target in _EXECUTORCH_SYM_OPS
