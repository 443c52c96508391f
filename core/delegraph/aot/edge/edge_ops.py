"""`exir_ops`: the operators of edge and backend programs as ExecuTorch's delegates and passes know them.

    exir_ops.edge.aten.add.Tensor            what an edge node calls; its `__name__` is "aten.add.Tensor"
    exir_ops.edge.aten.add                   all of its overloads
    exir_ops.backend.acme.fused.default      an operator that a backend's pass puts in the place of a pattern

An `EdgeOpOverload` is torch's operator under another name. It compares and hashes equal to that one, so that a table
with torch's operators for keys finds edge nodes too; in ExecuTorch (`exir/dialects/edge/_ops.py`) the two differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import GraphModule

from delegraph.aot.edge import dim_order_ops  # noqa: F401 - registers `exir_ops.edge.dim_order_ops`
from delegraph.aot.graph.bodies import graph_modules
from delegraph.aot.graph.out_variants import missing_text, out_variant
from delegraph.aot.torch_internals import DispatchKey
from delegraph.errors import MissingOutVariant

__all__ = [
    "BackendOpOverload",
    "BackendOpOverloadPacket",
    "DialectNamespace",
    "EdgeOpOverload",
    "EdgeOpOverloadPacket",
    "OperatorNamespace",
    "Operators",
    "edge_operator",
    "exir_ops",
    "name_after_operators",
    "use_edge_operators",
]

_MODULE: Final = "executorch.exir.dialects.edge._ops"
"""Where ExecuTorch has its class: printed graphs and generated code call an edge operator
`executorch_exir_dialects_edge__ops_aten_add_Tensor`, which is what tests written for ExecuTorch look for."""

_TORCHS_OWN: Final = frozenset({"aten", "prim", "prims"})


class EdgeOpOverload(OpOverload[..., Any]):
    """An operator as edge programs call it. `_op` is torch's own; calling either does the same."""

    def __init__(self, op: OpOverload, schema: torch.FunctionSchema | None = None) -> None:
        self.__dict__.update(op.__dict__)  # what torch attaches to an operator (kernels, caches) is shared
        self._op: OpOverload = op._op if isinstance(op, EdgeOpOverload) else op
        self._schema = schema or op._schema
        self.__name__ = str(self._op)
        self.__module__ = _MODULE

    def __eq__(self, other: object) -> bool:
        return self is other or self._op is (other._op if isinstance(other, EdgeOpOverload) else other)

    def __hash__(self) -> int:
        return hash(self._op)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.__name__}>: schema = {self._schema}"

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _looked_up, (type(self), self._schema.name, self._overloadname)

    @property
    def op(self) -> Any:
        """The function of torch's that runs it."""
        return self._op.op

    def to_out_variant(self) -> OpOverload:
        """The overload that writes its results into tensors it is given.

        Raises `MissingOutVariant` where torch knows none.
        """
        if any(argument.is_out for argument in self._op._schema.arguments):
            return self._op
        name = out_variant(self._op).schema.overload_name or "default"
        if name not in self.overloadpacket.overloads():
            raise MissingOutVariant(missing_text(self._op))
        overload: OpOverload = getattr(self.overloadpacket, name)
        return overload


class BackendOpOverload(EdgeOpOverload):
    """An operator that a backend's pass puts into a program; `_equivalent_callable` is what it stands for, if known."""

    def __init__(self, op_overload: OpOverload) -> None:
        super().__init__(op_overload)
        self.__module__ = _MODULE.replace(".edge.", ".backend.")
        self._equivalent_callable: Callable[..., Any] | None = None
        keys = (DispatchKey.Meta, DispatchKey.CompositeExplicitAutograd, DispatchKey.CompositeImplicitAutograd)
        assert any(self._op.has_kernel_for_dispatch_key(key) for key in keys), (
            f"{self.__name__} has no Meta, CompositeExplicitAutograd or CompositeImplicitAutograd kernel: nothing tells"
            " the shapes of its results"
        )


class EdgeOpOverloadPacket(OpOverloadPacket[..., Any]):
    """All overloads of an operator, each as `overload_type`."""

    overload_type: type[EdgeOpOverload] = EdgeOpOverload

    def __init__(
        self, qualified_op_name: str, op_name: str, parent_overload_packet: OpOverloadPacket[..., Any]
    ) -> None:
        self.__dict__.update(
            {name: value for name, value in parent_overload_packet.__dict__.items() if name.startswith("_")}
        )
        self._parent_overload_packet = parent_overload_packet
        self._qualified_op_name = qualified_op_name
        self.__name__ = qualified_op_name.replace("::", ".")
        self.__module__ = _MODULE
        self._dir = []

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {key}")
        parent = getattr(self._parent_overload_packet, key)
        if not isinstance(parent, OpOverload):
            return parent
        overload = self.overload_type(parent)
        setattr(self, key, overload)  # one object for each overload
        self._dir.append(key)
        return overload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverloadPacket) and self._op is other._op

    def __hash__(self) -> int:
        return hash(self._op)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(op='{self.__name__}', parent_op='{self._parent_overload_packet}')>"


class BackendOpOverloadPacket(EdgeOpOverloadPacket):
    """All overloads of an operator that a backend's passes add."""

    overload_type = BackendOpOverload


class OperatorNamespace:
    """`exir_ops.edge.aten`: the operators of a library."""

    def __init__(self, dialect: str, name: str) -> None:
        self._dialect = dialect
        self._name = name

    def __getattr__(self, op_name: str) -> EdgeOpOverloadPacket:
        parent = getattr(getattr(torch.ops, self._name), op_name)
        if not isinstance(parent, OpOverloadPacket):  # torch has `__file__` and the like there, beside `__rshift__`
            raise AttributeError(op_name)
        return _packet(self._dialect, parent)


class DialectNamespace:
    """`exir_ops.edge`: the libraries of operators, every operator as the dialect has it."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect

    def __getattr__(self, name: str) -> OperatorNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._dialect == "backend" and name in _TORCHS_OWN:
            raise RuntimeError(f"{name} op library does not belong to backend ops: use exir_ops.edge.{name}")
        return OperatorNamespace(self._dialect, name)


class Operators:
    """`exir_ops.edge.<namespace>.<operator>.<overload>`; `exir_ops.backend` is for operators that backends' passes
    add."""

    edge: Final = DialectNamespace("edge")
    backend: Final = DialectNamespace("backend")


exir_ops: Final = Operators()
"""`exir_ops.edge.<namespace>.<operator>.<overload>`; `exir_ops.backend` is for operators that backends' passes add."""

_PACKETS: Final[dict[tuple[str, int], EdgeOpOverloadPacket]] = {}
"""Packets by dialect and the identity of torch's packet, which the entry keeps alive: a library may be defined anew."""


def _packet(dialect: str, parent: OpOverloadPacket[..., Any]) -> EdgeOpOverloadPacket:
    packet = _PACKETS.get((dialect, id(parent)))
    if packet is None:
        kind = BackendOpOverloadPacket if dialect == "backend" else EdgeOpOverloadPacket
        packet = kind(parent._qualified_op_name, parent._qualified_op_name.partition("::")[2], parent)
        _PACKETS[dialect, id(parent)] = packet
    return packet


def _looked_up(kind: type[EdgeOpOverload], name: str, overload: str) -> EdgeOpOverload:
    """The operator that was pickled."""
    namespace, _, op_name = name.partition("::")
    dialect = exir_ops.backend if issubclass(kind, BackendOpOverload) else exir_ops.edge
    op: EdgeOpOverload = getattr(getattr(getattr(dialect, namespace), op_name), overload)
    return op


def edge_operator(op: OpOverload) -> EdgeOpOverload:
    """`op` as edge programs call it."""
    edge_op: EdgeOpOverload = getattr(_packet("edge", op.overloadpacket), op._overloadname)
    return edge_op


_STAY_TORCHS: Final = frozenset(
    {
        *(torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default),
        *(torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default),
        torch.ops.aten.scalar_tensor.default,
    }
)
"""Operators between numbers and tensors, which ExecuTorch leaves as they are in edge programs as well
(`exir/passes/replace_aten_with_edge_pass.py`)."""


def use_edge_operators(module: GraphModule) -> None:
    """Let every call of an operator, those in bodies of control flow included, call it by its edge name."""
    for _, body in graph_modules(module):
        for node in body.graph.nodes:
            if type(node.target) is OpOverload and node.target not in _STAY_TORCHS:
                node.target = edge_operator(node.target)


def name_after_operators(module: GraphModule) -> None:
    """Call every edge node what ExecuTorch calls it, bodies of control flow included: `aten_add_tensor`.

    Signatures refer to nodes by name: the program's has to be made again.
    """
    for _, body in graph_modules(module):
        for node in body.graph.nodes:
            if isinstance(node.target, EdgeOpOverload):
                name = body.graph._target_to_str(node.target).replace(".", "_")
                if not node.name.startswith(name):  # one that has a number keeps it
                    node._rename(name)
