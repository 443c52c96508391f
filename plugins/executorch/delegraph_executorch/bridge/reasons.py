"""What ExecuTorch's partitioners say of the nodes that they leave -> reasons, by node.

They tell it to two helpers of `executorch.exir.backend.utils`: `WhyNoPartition` writes it to a log, and
`WhyNoPartitionReporter` keeps it for a table. Both are listened to while a partitioner runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx import Node

from delegraph_executorch.bridge.imports import executorch

__all__ = ["listening"]

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def listening() -> Iterator[dict[Node, str]]:
    """The reasons, by node of ExecuTorch's program, that come up within the `with` block; the first one counts."""
    utils = executorch("exir.backend.utils")
    reasons: dict[Node, str] = {}
    with _ONE_AT_A_TIME:
        undo = [
            _listen(utils.WhyNoPartition, "__call__", reasons),
            _listen(utils.WhyNoPartitionReporter, "report_reject", reasons),
        ]
        try:
            yield reasons
        finally:
            for restore in undo:
                restore()


def _listen(helper: type, method: str, reasons: dict[Node, str]) -> Callable[[], None]:
    """Note what `helper` is told; the call that ends it."""
    told = getattr(helper, method)

    def note(self: Any, node: Node, reason: str) -> Any:
        reasons.setdefault(node, str(reason).strip())
        return told(self, node, reason)

    setattr(helper, method, note)
    return lambda: setattr(helper, method, told)
