"""What ExecuTorch's partitioners say of the nodes that they leave -> reasons, by node.

They tell it to two helpers of `executorch.exir.backend.utils`: `WhyNoPartition` writes it to a log, and
`WhyNoPartitionReporter` keeps it for a table. Both are listened to while a partitioner runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.fx import Node

from delegraph_executorch.bridge.imports import executorch
from delegraph_executorch.bridge.replacing import replaced

__all__ = ["listening"]


@contextmanager
def listening() -> Iterator[dict[Node, str]]:
    """The reasons, by node of ExecuTorch's program, that come up within the `with` block; the first one counts."""
    utils = executorch("exir.backend.utils")
    reasons: dict[Node, str] = {}
    with (
        _listening(utils.WhyNoPartition, "__call__", reasons),
        _listening(utils.WhyNoPartitionReporter, "report_reject", reasons),
    ):
        yield reasons


def _listening(helper: type, method: str, reasons: dict[Node, str]) -> AbstractContextManager[None]:
    """Note what `helper` is told in this thread."""
    told = getattr(helper, method)

    def note(self: Any, node: Node, reason: str) -> Any:
        reasons.setdefault(node, str(reason).strip())
        return told(self, node, reason)

    return replaced(helper, method, note)
