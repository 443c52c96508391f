"""A partition's edge program -> the blob that `delegraph_npu.runtime` executes, pass by pass.

    folding       q/dq calls -> `ir.Graph`, integer operators on NHWC tensors
    fusing        fewer operators: tables, limits and padding within others
    storage       views instead of moves
    scheduling    tiles, cascades, what is where in SRAM and DRAM
    emission      commands

The option `dump` names a directory that gets a file for each of them.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from torch.export import ExportedProgram

from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph_npu.aot import ir
from delegraph_npu.aot.emission import Program, emit
from delegraph_npu.aot.folding import fold
from delegraph_npu.aot.fusing import fuse
from delegraph_npu.aot.operators import OPERATORS
from delegraph_npu.aot.options import Options
from delegraph_npu.aot.scheduling import Schedule, schedule
from delegraph_npu.aot.storage import Layout, lay_out
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.blob import BLOB_VERSION, Blob, IoTensor, pack
from delegraph_npu.command_stream import encode
from delegraph_npu.commands import Dtype, Region
from delegraph_npu.device import device_text, read_device

__all__ = ["NpuLowering"]

_T = TypeVar("_T")


class NpuLowering(BackendDetails):
    """Compiles partitions for the simulated NPU; the backend id is `NpuBackend`."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile the partition; see `delegraph_npu.blob` for the format.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, `PreprocessError` for what
        does not fit into SRAM, and `InvalidArgument` for a device that cannot be read.
        """
        options = Options.of(compile_specs)
        text, where = device_text(options.device)
        device = read_device(text, where)
        dump = _Dump(options, _partition_name(edge_program))
        graph = dump("folding", fold(edge_program, {name: row.convert for name, row in OPERATORS.items()}))
        graph = dump("fusing", fuse(graph))
        layout = dump("storage", lay_out(graph))
        blocks = WeightBlocks(device.array.columns, options.compress_weights)
        plan = dump("scheduling", schedule(layout, device, blocks, options.optimize))
        program = emit(layout, plan, blocks, device.dma_channels)
        dump("emission", "\n".join(map(str, program.commands)) + "\n")
        handles = {i: _handles(layout, name) for i, name in enumerate(program.operators)}
        return PreprocessResult(
            pack(_blob(layout, plan, program, text, options.rounding)),
            debug_handle_map={i: found for i, found in handles.items() if found},
        )


def _blob(layout: Layout, plan: Schedule, program: Program, device: str, rounding: str) -> Blob:
    return Blob(
        device=device,
        rounding=rounding,
        sram_nbytes=plan.sram_nbytes,
        dram_nbytes=plan.dram_nbytes,
        stream=encode(program.commands),
        tables=program.tables,
        weights=program.weights,
        inputs=tuple(_io(laid, layout, plan) for laid in layout.graph.inputs),
        outputs=tuple(_io(laid, layout, plan) for laid in layout.graph.outputs),
        operators=program.operators,
    )


def _io(laid: ir.Laid, layout: Layout, plan: Schedule) -> IoTensor:
    """Where an input or output is, in torch's order of dims: the driver copies it there, or from there."""
    view = layout.views[laid.tensor]
    strides = tuple(view.strides[laid.order.index(dim)] for dim in range(len(laid.shape)))
    outside = view.storage in plan.outside
    region, base = (Region.DRAM, plan.dram) if outside else (Region.SRAM, plan.sram)
    dtype = Dtype[laid.tensor.dtype.name.upper()]
    return IoTensor(region, base[view.storage,] + view.offset, dtype, laid.shape, strides)


def _handles(layout: Layout, name: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(h for o in layout.graph.operators if o.name == name for h in o.debug_handles))


def _partition_name(program: ExportedProgram) -> str:
    return next((node.name for node in program.graph.nodes if node.op == "call_function"), "nothing")


class _Dump:
    """Hands a pass's result on, once it is written into the dump."""

    def __init__(self, options: Options, partition: str) -> None:
        self._options, self._partition = options, partition
        self._step = 0

    def __call__(self, name: str, result: _T) -> _T:
        self._step += 1
        self._options.dumped(self._partition, self._step, name, str(result))
        return result
