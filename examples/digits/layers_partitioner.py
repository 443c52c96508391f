"""How a partitioner is written: one that gives a backend only the layers that the user names.

It derives from the capability-based partitioner, which finds the partitions and needs to be told one thing: why a
node is *not* to be delegated, or None. Here: because it is in another layer, or because the backend says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from delegraph_partitioners import CapabilityBasedPartitioner


class LayersPartitioner(CapabilityBasedPartitioner):
    """Delegates what `whole` would, but only within the given layers of the model, such as `["features"]`."""

    def __init__(self, whole: CapabilityBasedPartitioner, layers: Sequence[str]) -> None:
        self.whole = whole
        self.layers = tuple(layers)
        super().__init__(
            whole.delegation_spec.backend_id,
            self._reason_to_leave,
            whole.delegation_spec.compile_specs,
            keep_whole=whole.keep_whole,
        )

    def _reason_to_leave(self, node: Node) -> str | None:
        if not any(f"{_layer_of(node)}.".startswith(f"{layer}.") for layer in self.layers):
            return f"is not in {' or '.join(self.layers)}"
        return self.whole.support(node)


def _layer_of(node: Node) -> str:
    """The module that the node came from, as torch.export recorded it: `features.0`."""
    stack = node.meta.get("nn_module_stack") or {"": ("", None)}
    path: str = list(stack.values())[-1][0]
    return path.removeprefix("L['self'].")
