"""ExecuTorch's `executorch.exir.backend.operator_support`: what not to partition, by operator, node name or module.

    CapabilityBasedPartitioner(graph_module, chain(MyOperators(), DontPartition("aten.add.Tensor")))

Each is one of torch's `OperatorSupportBase`, and remembers what it rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

__all__ = ["DontPartition", "DontPartitionModule", "DontPartitionName", "DontSupportBase"]


class DontSupportBase(OperatorSupportBase):
    """Rejects the nodes that a derived class says it does not want."""

    def __init__(self) -> None:
        self._rejected_nodes: list[Node] = []

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        """Whether the node may be taken; one that may not is remembered."""
        unwanted = self._is_unwanted(node)
        if unwanted:
            self.reject_node(node)
        return not unwanted

    def _is_unwanted(self, node: Node) -> bool:
        raise NotImplementedError

    def reject_node(self, node: Node) -> None:
        """Remember that `node` was rejected."""
        self._rejected_nodes.append(node)

    def rejected_nodes(self) -> list[Node]:
        """The nodes that were rejected, in the order in which they were asked about."""
        return self._rejected_nodes

    def has_rejected_node(self) -> bool:
        """Whether any was."""
        return bool(self._rejected_nodes)

    def num_rejected(self) -> int:
        """How many were."""
        return len(self._rejected_nodes)


class DontPartition(DontSupportBase):
    """Rejects operators: `exir_ops.edge.aten.add.Tensor`, `torch.ops.aten.add.Tensor`, or `"aten.add.Tensor"`, of which
    a part is enough where `exact` is False. A name is looked for in the operator that the model was exported with."""

    def __init__(self, *targets: Any, exact: bool = True) -> None:
        super().__init__()
        self.targets = targets
        self.exact = exact

    def _is_unwanted(self, node: Node) -> bool:
        if node.target in self.targets:
            return True
        exported = node.meta.get("original_aten")
        return exported is not None and any(_matches(self.exact, str(t), str(exported)) for t in self.targets)


class DontPartitionName(DontSupportBase):
    """Rejects nodes by name, of which a part is enough where `exact` is False."""

    def __init__(self, *targets: str, exact: bool = True) -> None:
        super().__init__()
        self.targets = targets
        self.exact = exact

    def _is_unwanted(self, node: Node) -> bool:
        return any(_matches(self.exact, target, node.name) for target in self.targets)


class DontPartitionModule(DontSupportBase):
    """Rejects what came from modules of a class (`"Linear"`, or with its module `"torch.nn.modules.linear.Linear"`), or
    from the module of a name; a part of either is enough where `exact` is False."""

    def __init__(self, *, module_name: str | None = None, instance_name: str | None = None, exact: bool = True) -> None:
        super().__init__()
        self.module_name = module_name
        self.instance_name = instance_name
        self.exact = exact

    def _is_unwanted(self, node: Node) -> bool:
        return any(
            _matches(self.exact, self.instance_name, instance)
            or _matches(self.exact, self.module_name, self._own(kind))
            for instance, kind in _modules(node)
        )

    def _own(self, kind: str) -> str:
        return kind if self.module_name is None or "." in self.module_name else kind.rpartition(".")[2]


def _modules(node: Node) -> Iterator[tuple[str, str]]:
    """(name, class) of the modules that the node came from, outermost first."""
    for instance, kind, *_ in (node.meta.get("nn_module_stack") or {}).values():
        yield instance, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _matches(exact: bool, wanted: str | None, found: str) -> bool:
    return bool(wanted) and (wanted == found if exact else str(wanted) in found)
