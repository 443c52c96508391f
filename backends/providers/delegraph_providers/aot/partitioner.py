"""The partitioners that users name "qnn", "webgpu", …: each takes every node that the provider takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.interfaces import Partitioner, PartitionResult
from delegraph_partitioners import CapabilityBasedPartitioner
from delegraph_providers.aot.asking import Device
from delegraph_providers.aot.targets import lowered_for
from delegraph_providers.options import GraphOptions, QnnOptions, graph_options
from delegraph_providers.providers import (
    MIGRAPHX,
    MLX,
    OPENVINO_EP,
    PROVIDER,
    QNN,
    TENSORRT_RTX,
    WEBGPU,
    WINDOWSML,
    Provider,
)

__all__ = [
    "any_partitioner",
    "migraphx_partitioner",
    "mlx_partitioner",
    "openvino_partitioner",
    "qnn_partitioner",
    "tensorrt_rtx_partitioner",
    "webgpu_partitioner",
    "windowsml_partitioner",
]


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
    return _AskingPartitioner(Device(QNN, options), minimum_nodes, allow_trivial)


def any_partitioner(
    *, package: str = "", precision: str = "f32", device: str = "", minimum_nodes: int = 1, allow_trivial: bool = False
) -> Partitioner:
    """A partitioner for the provider that the plug-in `package` has, a module such as "onnxruntime_ep_someones"; the
    others are those of `GraphOptions`. Raises `InvalidArgument` for a value that an option does not take; without a
    package, when it is asked for partitions."""
    options = graph_options(PROVIDER)(precision, device, package=package)
    return _AskingPartitioner(Device(PROVIDER, options), minimum_nodes, allow_trivial)


def _partitioner_for(provider: Provider) -> Callable[..., Partitioner]:
    def partitioner(
        *, precision: str = "f32", device: str = "", minimum_nodes: int = 1, allow_trivial: bool = False
    ) -> Partitioner:
        """A partitioner for a provider that compiles at load.

        `precision` and `device` are a delegate's options: see `GraphOptions`. A delegate has at least `minimum_nodes`
        calls; with `allow_trivial` it may consist of views alone. Raises `InvalidArgument` for a value that an option
        does not take.
        """
        options = graph_options(provider)(precision, device)
        return _AskingPartitioner(Device(provider, options), minimum_nodes, allow_trivial)

    return partitioner


webgpu_partitioner: Final = _partitioner_for(WEBGPU)
tensorrt_rtx_partitioner: Final = _partitioner_for(TENSORRT_RTX)
mlx_partitioner: Final = _partitioner_for(MLX)
migraphx_partitioner: Final = _partitioner_for(MIGRAPHX)
windowsml_partitioner: Final = _partitioner_for(WINDOWSML)
openvino_partitioner: Final = _partitioner_for(OPENVINO_EP)


class _AskingPartitioner(CapabilityBasedPartitioner):
    """Proposes partitions, asks the device about each, and proposes again without what it leaves."""

    is_suggested = False

    def __init__(self, device: Device, minimum_nodes: int, allow_trivial: bool) -> None:
        self._device = device
        self._declined: dict[Node, str] = {}
        table, _ = lowered_for(device.provider)
        super().__init__(
            device.provider.backend_id,
            lambda node: self._declined.get(node) or table.support(node),
            device.options.compile_specs(),
            keep_whole=table.kept_whole,
            minimum_nodes=minimum_nodes,
            allow_trivial=allow_trivial,
            take_scalars=table.target.dynamic,
            take_mutated_buffers=table.target.states,
        )

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """As `CapabilityBasedPartitioner`. Raises `PluginUnavailable` for a provider that compiles and is not here, and
        `InvalidArgument` for one without a row whose package was not named."""
        if isinstance(self._device.options, GraphOptions):
            self._device.options.chosen_provider  # noqa: B018 - which it has, or says what to name
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
            self._declined |= left
            if not left or not self._device.is_asked:  # what a table takes of a graph, it takes of each part
                return super().partition(exported_program)
