"""The partitioner that users name "qnn": takes every node that the provider takes."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.interfaces import Partitioner, PartitionResult
from delegraph_partitioners import CapabilityBasedPartitioner
from delegraph_providers.aot.asking import Device
from delegraph_providers.aot.target import TABLE
from delegraph_providers.options import QnnOptions
from delegraph_providers.providers import QNN

__all__ = ["qnn_partitioner"]


def qnn_partitioner(
    *,
    soc_model: int = 57,
    htp_arch: int = 75,
    precision: str = "f16",
    vtcm_mb: int = 0,
    minimum_nodes: int = 1,
    allow_trivial: bool = False,
) -> Partitioner:
    """A partitioner for `QnnProvider`.

    The first four are a delegate's options: see `QnnOptions`. A delegate has at least `minimum_nodes` calls; with
    `allow_trivial` it may consist of views alone. Raises `InvalidArgument` for a value that an option does not take.
    """
    options = QnnOptions(soc_model, htp_arch, precision, vtcm_mb)
    return _AskingPartitioner(Device(options), minimum_nodes, allow_trivial)


class _AskingPartitioner(CapabilityBasedPartitioner):
    """Proposes partitions, asks the device about each, and proposes again without what it leaves."""

    def __init__(self, device: Device, minimum_nodes: int, allow_trivial: bool) -> None:
        self._device = device
        self._declined: dict[Node, str] = {}
        super().__init__(
            QNN.backend_id,
            lambda node: self._declined.get(node) or TABLE.support(node),
            device.options.compile_specs(),
            keep_whole=TABLE.kept_whole,
            minimum_nodes=minimum_nodes,
            allow_trivial=allow_trivial,
        )

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """As `CapabilityBasedPartitioner`. Raises `NotSupported` if the provider is not installed."""
        self._declined = {}
        whole: set[tuple[Node, ...]] = set()  # partitions that need not be asked about again
        while True:
            groups, _ = self.groups(exported_program.graph)
            left: dict[Node, str] = {}
            for nodes in groups:
                answer = {} if tuple(nodes) in whole else self._device.declined(exported_program, nodes)
                left |= answer
                if not answer:
                    whole.add(tuple(nodes))
            if not left:
                return super().partition(exported_program)
            self._declined |= left
