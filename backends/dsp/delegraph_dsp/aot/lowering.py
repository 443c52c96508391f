"""A partition's edge program -> the blob that `delegraph_dsp.runtime` executes, pass by pass.

KernelGraph      nodes -> kernel calls on values and views
place_calls      kernel calls -> blocks, what stays in the TCM, places
emit             these -> transfers, waits, launches with their scheduled loops
pack             program -> bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from torch.export import ExportedProgram

from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph_dsp.aot import converters
from delegraph_dsp.aot.dump import calls_text, placement_text
from delegraph_dsp.aot.emission import emit
from delegraph_dsp.aot.kernel_calls import Value
from delegraph_dsp.aot.kernel_graph import KernelGraph, Unsupported
from delegraph_dsp.aot.placement import Placed, place_calls
from delegraph_dsp.binary import pack
from delegraph_dsp.device import Device, device_named, device_of
from delegraph_dsp.disassembler import program_text
from delegraph_dsp.program import BLOB_VERSION, Program
from delegraph_dsp.runtime.validator import validate

__all__ = ["DEFAULT_DEVICE", "DEVICE", "DTYPE", "Compiled", "DspLowering", "compile_program"]

DEFAULT_DEVICE: Final = "hvx-4mb"

DEVICE: Final = "device"
"""The compile spec with the description of the device, as TOML."""

DTYPE: Final = "dtype"
"""The compile spec that says what float32 is computed as."""

assert converters.TABLE is KernelGraph.table


@dataclass(frozen=True, slots=True)
class Compiled:
    """What each pass made of a partition."""

    graph: KernelGraph
    outputs: tuple[Value, ...]
    placed: Placed
    program: Program

    @property
    def texts(self) -> dict[str, str]:
        """Each pass's result, to be read."""
        return {
            "kernels": calls_text(self.graph.calls, self.graph.operators),
            "placement": placement_text(self.graph.calls, self.placed),
            "program": program_text(self.program),
        }


def compile_program(program: ExportedProgram, device: Device, half_for_float: bool = False) -> Compiled:
    """Compile a partition for a device.

    Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` for one
    that the device's memory is too small for.
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
    placed = place_calls(graph.calls, outputs, device)
    shapes = [tuple(node.meta["val"].shape) for node in graph.signature.outputs]
    written = list(zip(outputs, shapes, strict=True))
    emitted = emit(graph.calls, placed, graph.inputs, written, graph.operators, device)
    return Compiled(graph, tuple(outputs), placed, emitted)


class DspLowering(BackendDetails):
    """Compiles partitions for the vector machine; the backend id is `DspBackend`."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile a partition; what each pass made of it is in the result's `_delegate_info_meta`, by name.

        Raises what `compile_program` does.
        """
        device, half_for_float = settings(compile_specs)
        compiled = compile_program(edge_program, device, half_for_float)
        validate(compiled.program)
        handles = {number: handles for number, handles in enumerate(compiled.graph.handles) if handles}
        return PreprocessResult(pack(compiled.program), handles, _delegate_info_meta=compiled.texts)


def settings(compile_specs: Sequence[CompileSpec]) -> tuple[Device, bool]:
    """The device, and whether float32 is computed as float16; the defaults where nothing is said."""
    said = {spec.key: bytes(spec.value).decode() for spec in compile_specs}
    device = device_of(said[DEVICE], "compile spec 'device'") if DEVICE in said else device_named(DEFAULT_DEVICE)
    return device, said.get(DTYPE) == "float16"
