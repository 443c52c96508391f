"""Passes that call other operators: those of a dialect or of the runtime, on tensors for numbers, without aliases."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from delegraph.aot import EdgeOpOverload, exir_ops, graph_modules
from delegraph_executorch.bridge.imports import let_wheel_define_operators
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, PassBase, PassResult, ProxyValue, map_args

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


def retarget(graph_module: GraphModule, targets: Mapping[Any, Any]) -> PassResult:
    """Let each call of a key of `targets`, in bodies of control flow too, call its value; in place."""
    modified = False
    for _, module in graph_modules(graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target in targets:
                node.target = targets[node.target]
                modified = True
        module.recompile()
    return PassResult(graph_module, modified)


aten = torch.ops.aten
DISALLOW_LIST = [aten._assert_scalar.default, aten._assert_async.msg, aten.scalar_tensor.default]


def aten_to_edge(aten_op: OpOverload) -> EdgeOpOverload:
    """The edge operator of an ATen or custom operator."""
    namespace, _, name = aten_op._schema.name.partition("::")
    found: EdgeOpOverload = getattr(getattr(getattr(exir_ops.edge, namespace), name), aten_op._overloadname)
    return found


def should_lower_to_edge(op: Any) -> bool:
    """Whether edge programs call `op` by an edge operator: not operators on symbols, not assertions."""
    return isinstance(op, OpOverload) and not is_sym_op(op) and op not in DISALLOW_LIST


class OpReplacePass(ExportPass):
    """Calls edge operators where torch's were called."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, of the edge operator."""
        return super().call_operator(aten_to_edge(op) if should_lower_to_edge(op) else op, args, kwargs, meta)


class EdgeToBackendOpsPass(PassBase):
    """Names the runtime's operators, in place. Delegraph's lowering does it when it emits: no program needs it."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each call, those of bodies too."""
        return retarget(graph_module, _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS)


replacements: Final[dict[Any, Any]] = {
    aten.sym_size: aten.sym_size.int,
    aten.sym_stride: aten.sym_stride.int,
    aten.sym_numel: aten.sym_numel.default,
}


class ReplaceSymSizeOpPass(PassBase):
    """Names the overload, in place."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each call, those of bodies too."""
        return retarget(graph_module, replacements)


class NormalizeTransposePass(ExportPass):
    """Calls `t_copy` where `t` was called."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, of the copy."""
        copying = torch.ops.aten.t_copy.default if op == torch.ops.aten.t.default else op
        return super().call_operator(copying, args, kwargs, meta)


class ReplaceBrokenOpsWithFunctionalOpsPass(ExportPass):
    """Calls `view_copy` where `view` was called, and so on for each operator whose result is a view."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, of the copy."""
        if getattr(op, "is_view", False):
            namespace, _, name = op._schema.name.partition("::")
            op = getattr(getattr(getattr(torch.ops, namespace), f"{name}_copy"), op._overloadname)
        return super().call_operator(op, args, kwargs, meta)


class ScalarToTensorPass(ExportPass):
    """Makes numbers tensors. `to_edge` has done it already; this is for graphs that a pass has made."""

    _modified = False

    def call(self, graph_module: GraphModule) -> PassResult:
        """The graph traced anew; `modified` tells whether there was such a number."""
        self._modified = False
        return PassResult(super().call(graph_module).graph_module, self._modified)

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call on tensors."""

        def tensor(value: Any, schema: Any) -> Any:
            if not isinstance(value, (bool, int, float)) or not isinstance(schema.type, torch.TensorType):
                return value
            self._modified = True
            with _disable_current_modes():  # a constant, not a fake tensor
                return torch.tensor(value)

        return super().call_operator(op, *map_args(op, tensor, args, kwargs), meta)


_DTYPES: Final = {torch.SymInt: torch.int32, torch.SymFloat: torch.float32, torch.SymBool: torch.bool}


class SymToTensorPass(ExportPass):
    """Puts `scalar_tensor` before symbolic numbers that stand for tensors."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call on tensors."""

        def tensor(value: Any, schema: Any) -> Any:
            dtype = _DTYPES.get(type(value.data)) if isinstance(value, ProxyValue) else None
            if dtype is None or not isinstance(schema.type, torch.TensorType):
                return value
            return super(SymToTensorPass, self).call_operator(
                torch.ops.aten.scalar_tensor.default, (value,), {"dtype": dtype}, meta
            )

        return super().call_operator(op, *map_args(op, tensor, args, kwargs), meta)


_DEFAULT: Final = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
_TO_FLOAT: Final = ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT

_PROMOTION: Final = {
    aten.add.Tensor: _DEFAULT,
    aten.sub.Tensor: _DEFAULT,
    aten.mul.Tensor: _DEFAULT,
    aten.minimum.default: _DEFAULT,
    aten.div.Tensor: _TO_FLOAT,
    aten.div.Tensor_mode: _DEFAULT,
}
"""Operators of several operands, and what torch computes them in."""


class RemoveMixedTypeOperators(ExportPass):
    """Puts a cast before each operand of arithmetic whose dtype is not the one that torch computes in."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call on operands of one dtype."""
        kind = _PROMOTION.get(op)
        if kind is None or len(args) < 2:
            return super().call_operator(op, args, kwargs, meta)
        if op == aten.div.Tensor_mode and kwargs.get("rounding_mode") is None:
            kind = _TO_FLOAT
        dtype = elementwise_dtypes(*map(_operand, args), type_promotion_kind=kind)[1]

        def cast(value: Any, schema: Any) -> Any:
            tensor = value.data if isinstance(value, ProxyValue) else value
            if not isinstance(schema.type, torch.TensorType) or getattr(tensor, "dtype", dtype) == dtype:
                return value
            return super(RemoveMixedTypeOperators, self).call_operator(
                aten._to_copy.default, (value,), {"dtype": dtype}, meta
            )

        return super().call_operator(op, *map_args(op, cast, args, kwargs), meta)


def _operand(argument: Any) -> Any:
    """A tensor or number that has the dtype of `argument`."""
    data = argument.data if isinstance(argument, ProxyValue) else argument
    for symbolic, example in ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False)):
        if isinstance(data, symbolic):
            return torch.tensor(example)
    return data
