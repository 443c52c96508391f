"""ExecuTorch's `executorch.exir.verification`: programs -> nothing, or torch's `SpecViolationError`.

What is checked is Delegraph's own: `delegraph.aot.verify`, with the dialects `CORE_ATEN` and `EDGE`. An edge program
also says layouts as `EdgeCompileConfig._skip_dim_order` has it: by dim order, or by memory format.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, NoReturn

from torch._export.verifier import SpecViolationError
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from delegraph.aot import CORE_ATEN, EDGE, Dialect, EdgeCompileConfig, EdgeOpOverload, verify
from delegraph.errors import NotSupported, VerificationError
from delegraph_executorch.exir.passes.dim_order_ops_registry import DimOrderOpsMap


class EXIRATenDialectVerifierBase:
    """Checks a program, or a graph, against a dialect."""

    checked: ClassVar[Dialect | None] = None
    kept: ClassVar[Collection[OpOverload]] = ()

    def __call__(self, ep_or_gm: ExportedProgram | GraphModule) -> None:
        """Raise `SpecViolationError` that lists each violation."""
        if self.checked is None:
            return
        try:
            verify(ep_or_gm, self.checked, self.kept)
        except VerificationError as violation:
            raise SpecViolationError(str(violation)) from violation

    def is_valid(self, gm: ExportedProgram | GraphModule) -> bool:
        """Whether there is no violation."""
        try:
            self(gm)
        except SpecViolationError:
            return False
        return True

    def check_valid_op(self, op: Any) -> None:
        """Raise `SpecViolationError` for an operator that programs of the dialect do not call."""
        node = Graph().call_function(op)
        node.meta["val"] = None
        for rule in self.checked.rules if self.checked is not None else ():
            if (violation := rule(node, self.kept)) is not None:
                raise SpecViolationError(violation)

    check_valid_edge_op = check_valid_op


def EXIRATenDialectVerifier(
    edge_compile_config: EdgeCompileConfig | None = None,
    class_only: bool = False,
    core_aten_ops_exception_list: Sequence[OpOverload] | None = None,
    preserve_ops: Sequence[OpOverload] | None = None,
) -> Any:
    """A verifier of core ATen programs, or its class."""
    return _verifier(CORE_ATEN, edge_compile_config, class_only, core_aten_ops_exception_list, preserve_ops)


def EXIREdgeDialectVerifier(
    edge_compile_config: EdgeCompileConfig | None = None,
    class_only: bool = False,
    core_aten_ops_exception_list: Sequence[OpOverload] | None = None,
    preserve_ops: Sequence[OpOverload] | None = None,
) -> Any:
    """A verifier of edge programs, delegates or not, or its class."""
    skips = edge_compile_config is not None and edge_compile_config._skip_dim_order
    dialect = Dialect(EDGE.name, (*EDGE.rules, layouts_are_memory_formats if skips else layouts_are_dim_orders))
    return _verifier(dialect, edge_compile_config, class_only, core_aten_ops_exception_list, preserve_ops)


def layouts_are_memory_formats(node: Node, _kept: Collection[OpOverload]) -> str | None:
    """A rule of edge programs that were made with `_skip_dim_order`."""
    if isinstance(node.target, OpOverload) and node.target.namespace == "dim_order_ops":
        return f"{node.target} has a dim order, where _skip_dim_order=True asks for memory formats"
    return None


def layouts_are_dim_orders(node: Node, kept: Collection[OpOverload]) -> str | None:
    """A rule of edge programs that were made without `_skip_dim_order`."""
    if isinstance(node.target, EdgeOpOverload) and node.target in DimOrderOpsMap and node.target not in kept:
        return f"{node.target} has a memory format, where _skip_dim_order=False asks for a dim order"
    return None


def get_aten_verifier(config: EdgeCompileConfig) -> type[EXIRATenDialectVerifierBase]:
    """The class for ATen programs; without `_check_ir_validity` one that checks nothing."""
    made: type[EXIRATenDialectVerifierBase] = EXIRATenDialectVerifier(config, class_only=True)
    return made


def _verifier(
    dialect: Dialect, config: EdgeCompileConfig | None, class_only: bool, *exceptions: Iterable[OpOverload] | None
) -> Any:
    allowed = {op for ops in exceptions for op in ops or ()}

    class _Verifier(EXIRATenDialectVerifierBase):
        checked = dialect if config is None or config._check_ir_validity else None
        kept = frozenset(allowed if config is None else allowed | config.allowed_ops)

    return _Verifier if class_only else _Verifier()


class Interpreter:
    """Raises `NotSupported`: a program is run by the runtime, which needs no bindings."""

    def __init__(self, program: Any) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise NotSupported(
        "there is no interpreter of programs in Python beside the runtime: run delegraph.load(bytes)(*inputs), and read"
        " a program's values and operators from delegraph.program.deserialize_program(bytes)"
    )
