"""A partition's edge program -> the blob that `delegraph_dsp.runtime` executes, pass by pass.

KernelGraph      nodes -> kernel calls on values and views
place_calls      kernel calls -> blocks, values that stay in the TCM, places
sharing          the constants that partitions share
emit             these -> transfers, waits, launches with their scheduled loops
pack             program -> bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from torch.export import ExportedProgram

from delegraph.aot import NamedDataStore
from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BackendDetails, CompileSpec, NamedDataStoreOutput, PreprocessResult
from delegraph_dsp.aot import converters
from delegraph_dsp.aot.constants import WORD, digests
from delegraph_dsp.aot.dump import calls_text, placement_text
from delegraph_dsp.aot.emission import emit
from delegraph_dsp.aot.kernel_calls import Value
from delegraph_dsp.aot.kernel_graph import KernelGraph, Unsupported
from delegraph_dsp.aot.placement import Placed, place_calls
from delegraph_dsp.binary import pack
from delegraph_dsp.device import Device, device_named, device_of
from delegraph_dsp.disassembler import program_text
from delegraph_dsp.program import BACKEND_ID, BLOB_VERSION, Program
from delegraph_dsp.runtime.validator import validate
from delegraph_machines.region_pool import RegionPool, sharing

__all__ = ["DEFAULT_DEVICE", "DEVICE", "DTYPE", "Compiled", "DspLowering", "compile_program"]

DEFAULT_DEVICE: Final = "hvx-4mb"

DEVICE: Final = "device"
"""The compile spec with the description of the device, as TOML."""

DTYPE: Final = "dtype"
"""The compile spec with the dtype in which float32 is computed."""

assert converters.TABLE is KernelGraph.table


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition after the passes before emission. `outputs` have the caller's shapes."""

    graph: KernelGraph
    outputs: tuple[tuple[Value, tuple[int, ...]], ...]
    placed: Placed
    device: Device

    def emitted(self, pool: RegionPool) -> Compiled:
        """The partition with its program, whose constants are in `pool`."""
        graph = self.graph
        program = emit(
            graph.calls, self.placed, graph.inputs, self.outputs, graph.operators, graph.results, self.device, pool
        )
        return Compiled(graph, self.placed, program)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The results of all passes for a partition."""

    graph: KernelGraph
    placed: Placed
    program: Program

    def reading(self, pool: RegionPool) -> Compiled:
        """The same, reading the constants of all partitions that share `pool`."""
        constants, *regions = self.program.regions
        whole = replace(constants, nbytes=len(pool.content))
        content = bytes(pool.content)
        program = replace(self.program, regions=(whole, *regions), constants=content, constants_key=pool.key)
        return replace(self, program=program)

    def result(self, named: NamedDataStoreOutput | None = None) -> PreprocessResult:
        """The blob; the passes' results are in its `_delegate_info_meta`, by name."""
        validate(self.program)
        handles = {number: handles for number, handles in enumerate(self.graph.handles) if handles}
        texts = {
            "kernels": calls_text(self.graph.calls, self.graph.operators),
            "placement": placement_text(self.graph.calls, self.placed),
            "program": program_text(self.program),
        }
        return PreprocessResult(pack(self.program), handles, data_store_output=named, _delegate_info_meta=texts)


def placed_partition(program: ExportedProgram, device: Device, half_for_float: bool = False) -> Partition:
    """Run the passes before emission, for a device.

    Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` for a
    node for which the device's memory is too small.
    """
    graph = KernelGraph(half_for_float)
    try:
        views = graph.convert_program(program)
        outputs: list[Value] = []
        for view, node in zip(views, graph.signature.outputs, strict=True):
            outputs.append(graph.finished(view, node, outputs))
    except Unsupported as reason:
        name = None if graph.node is None else graph.node.name
        raise UnsupportedOperator(f"the DSP cannot compile it: {reason}", node=name) from None
    shapes = [tuple(node.meta["val"].shape) for node in graph.signature.outputs]
    written = tuple(zip(outputs, shapes, strict=True))
    return Partition(graph, written, place_calls(graph.calls, outputs, device), device)


def compile_program(program: ExportedProgram, device: Device, half_for_float: bool = False) -> Compiled:
    """Compile a partition by itself. Raises as `placed_partition`."""
    return placed_partition(program, device, half_for_float).emitted(RegionPool(BACKEND_ID, WORD))


class DspLowering(BackendDetails):
    """Compiles partitions for the vector machine; the backend id is `DspBackend`."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile a partition. Raises as `placed_partition`."""
        return compile_program(edge_program, *settings(compile_specs)).result()

    @classmethod
    def submits(cls, compile_specs: Sequence[CompileSpec]) -> bool:
        """All are: the DSP works beside the host."""
        return True

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but partitions with common constants have theirs in the named data, once."""
        partitions = {
            method: [
                placed_partition(program, *settings(specs))
                for program, specs in zip(programs, compile_specs[method], strict=True)
            ]
            for method, programs in edge_programs.items()
        }
        everything = [partition for of_method in partitions.values() for partition in of_method]
        shares = sharing([digests(partition.graph.calls) for partition in everything])
        pool = RegionPool(BACKEND_ID, WORD)
        emitted = [
            partition.emitted(pool if shared else RegionPool(BACKEND_ID, WORD))
            for partition, shared in zip(everything, shares, strict=True)
        ]
        store = NamedDataStore()
        if any(shares):
            store.add_named_data(pool.key, bytes(pool.content), WORD)
        named = store.get_named_data_store_output()
        results = iter(
            compiled.reading(pool).result(named) if shared else compiled.result()
            for compiled, shared in zip(emitted, shares, strict=True)
        )
        return {method: [next(results) for _ in of_method] for method, of_method in partitions.items()}


def settings(compile_specs: Sequence[CompileSpec]) -> tuple[Device, bool]:
    """The device, and whether float32 is computed as float16; defaults where the specs say nothing."""
    said = {spec.key: bytes(spec.value).decode() for spec in compile_specs}
    device = device_of(said[DEVICE], "compile spec 'device'") if DEVICE in said else device_named(DEFAULT_DEVICE)
    return device, said.get(DTYPE) == "float16"
