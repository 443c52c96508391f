"""A partition's edge program -> the blob that `delegraph_npu.runtime` executes, pass by pass.

    folding       q/dq calls -> `ir.Graph`, integer operators on NHWC tensors
    fusing        fewer operators: tables, limits and padding within others
    storage       views instead of moves
    scheduling    tiles, cascades, places in SRAM and DRAM
    weight_streams  the weights that partitions share
    emission      commands

The result of each pass is in the lowered module's meta, as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from torch.export import ExportedProgram

from delegraph.aot import NamedDataStore
from delegraph.interfaces import BackendDetails, BlobVariant, CompileSpec, NamedDataStoreOutput, PreprocessResult
from delegraph_machines.region_pool import RegionPool, sharing
from delegraph_npu.aot import ir
from delegraph_npu.aot.emission import EmittedProgram, emit
from delegraph_npu.aot.folding import fold
from delegraph_npu.aot.fusing import fuse
from delegraph_npu.aot.instructions import Constants
from delegraph_npu.aot.operators import CONVERTERS
from delegraph_npu.aot.options import Options
from delegraph_npu.aot.scheduling import Schedule, schedule
from delegraph_npu.aot.storage import StorageLayout, lay_out
from delegraph_npu.aot.tiling import ALIGNMENT
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.aot.weight_streams import streams
from delegraph_npu.blob import BACKEND_ID, BLOB_VERSION, Blob, IoTensor, NamedWeights, pack
from delegraph_npu.command_stream import encode
from delegraph_npu.commands import Dtype, Region
from delegraph_npu.device import Device, read_device

__all__ = ["NpuLowering", "Partition", "scheduled"]


class NpuLowering(BackendDetails):
    """Compiles partitions for the simulated NPU; the backend id is `NpuBackend`."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile the partition; see `delegraph_npu.blob` for the format.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, `PreprocessError` for an
        operator that does not fit into SRAM, and `InvalidArgument` for a device that cannot be read.
        """
        partition = scheduled(fold(edge_program, CONVERTERS), Options.of(compile_specs))
        program, pool = partition.emitted()
        return partition.result(program, bytes(pool.content))

    @classmethod
    def submits(cls, compile_specs: Sequence[CompileSpec]) -> bool:
        """All are: the NPU works beside the host."""
        return True

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but weights that several partitions have go into the named data, once; and with a blob for
        each device that the options name."""
        asked = [
            (fold(program, CONVERTERS), Options.of(specs).of_each_device())
            for method, programs in edge_programs.items()
            for program, specs in zip(programs, compile_specs[method], strict=True)
        ]
        blobs: list[list[Compiled]] = [[] for _ in asked]
        for place in range(max(len(options) for _, options in asked)):
            for_device = [i for i, (_, options) in enumerate(asked) if place < len(options)]
            partitions = [scheduled(asked[i][0], asked[i][1][place]) for i in for_device]
            for i, compiled in zip(for_device, _compiled_together(partitions), strict=True):
                blobs[i].append(compiled)
        results = iter(map(_result, blobs))
        return {method: [next(results) for _ in programs] for method, programs in edge_programs.items()}


Compiled: TypeAlias = "tuple[Partition, PreprocessResult]"
"""A partition for one device, and its blob."""


def _compiled_together(partitions: Sequence[Partition]) -> list[Compiled]:
    """The blobs of partitions for one device."""
    shares = sharing([streams(partition.plan, partition.blocks) for partition in partitions])
    pool = RegionPool(BACKEND_ID)
    emitted = [
        partition.emitted(pool if shared else None) for partition, shared in zip(partitions, shares, strict=True)
    ]
    store = NamedDataStore()
    if any(shares):
        store.add_named_data(pool.key, bytes(pool.content), ALIGNMENT)
    named = store.get_named_data_store_output()
    return [
        (partition, partition.result(program, NamedWeights(pool.key, len(pool.content)), named))
        if shared
        else (partition, partition.result(program, bytes(own.content)))
        for partition, shared, (program, own) in zip(partitions, shares, emitted, strict=True)
    ]


def _result(blobs: Sequence[Compiled]) -> PreprocessResult:
    """The blobs of one partition for its devices as one result; each is called as its device."""
    (first, result), *others = blobs
    if not others:
        return result
    variants = [
        BlobVariant(partition.device.name, other.processed_bytes, other.data_store_output, partition.options.specs())
        for partition, other in others
    ]
    return replace(result, variant=first.device.name, variants=variants)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition after the passes before emission: all that its blob is written from."""

    options: Options
    device: Device
    folded: ir.Graph
    fused: ir.Graph
    layout: StorageLayout
    blocks: WeightBlocks
    plan: Schedule

    def emitted(self, shared: RegionPool | None = None) -> tuple[EmittedProgram, RegionPool]:
        """Its commands, and the weights that they read: those of a shared pool, or its own."""
        pool = RegionPool(BACKEND_ID) if shared is None else shared
        constants = Constants(self.blocks, pool, shared is not None)
        return emit(self.layout, self.plan, constants, self.device.dma_channels), pool

    def result(
        self, program: EmittedProgram, weights: bytes | NamedWeights, named: NamedDataStoreOutput | None = None
    ) -> PreprocessResult:
        """The blob, and the results of the passes as text."""
        blob = Blob(
            device=self.options.device,
            rounding=self.options.rounding,
            sram_nbytes=self.plan.sram_nbytes,
            dram_nbytes=self.plan.dram_nbytes,
            stream=encode(program.commands),
            tables=program.tables,
            weights=weights,
            inputs=tuple(_io(laid, self.layout, self.plan) for laid in self.layout.graph.inputs),
            outputs=tuple(_io(laid, self.layout, self.plan) for laid in self.layout.graph.outputs),
            operators=program.operators,
            values=tuple(map(_values(self.layout, self.plan).get, program.operators)),
        )
        handles = {name: _handles(self.layout, name) for name in program.operators}
        passes = {
            "folding": self.folded,
            "fusing": self.fused,
            "storage": self.layout,
            "scheduling": self.plan,
            "emission": program,
        }
        return PreprocessResult(
            pack(blob),
            debug_handle_map={name: numbers for name, numbers in handles.items() if numbers},
            data_store_output=named,
            _delegate_info_meta={name: str(result) for name, result in passes.items()},
        )


def scheduled(folded: ir.Graph, options: Options) -> Partition:
    """Run the passes between folding and emission."""
    device = read_device(options.device, "compile spec 'device'")
    fused = fuse(folded)
    layout = lay_out(fused)
    blocks = WeightBlocks(device.array.columns, options.compress_weights)
    plan = schedule(layout, device, blocks, options.optimize)
    return Partition(options, device, folded, fused, layout, blocks, plan)


def _io(laid: ir.Laid, layout: StorageLayout, plan: Schedule) -> IoTensor:
    """The place of an input or output, in torch's order of dims, to or from which the driver copies it."""
    view = layout.views[laid.tensor]
    strides = tuple(view.strides[laid.order.index(dim)] for dim in range(len(laid.shape)))
    outside = view.storage in plan.outside
    region, base = (Region.DRAM, plan.dram) if outside else (Region.SRAM, plan.sram)
    dtype = Dtype[laid.tensor.dtype.name.upper()]
    return IoTensor(region, base[view.storage,] + view.offset, dtype, laid.shape, strides)


def _values(layout: StorageLayout, plan: Schedule) -> dict[str, IoTensor]:
    """Where the results of operators lie, by name. Within a cascade they never lie anywhere as a whole, and those that
    other operators move on lie where these left them."""
    written = {operator.output: operator.name for operator in layout.graph.operators}
    there = plan.sram.keys() | plan.dram.keys()
    return {
        written[laid.tensor]: _io(laid, layout, plan)
        for laid in layout.graph.results
        if laid.tensor in written and (layout.views[laid.tensor].storage,) in there
    }


def _handles(layout: StorageLayout, name: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(h for o in layout.graph.operators if o.name == name for h in o.debug_handles))
