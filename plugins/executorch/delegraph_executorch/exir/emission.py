"""Exported programs -> the program in ExecuTorch's records, and its bytes (ExecuTorch `exir/emit`, `_serialize.py`).

Emission is Delegraph's; its result goes through the bytes of a file into these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram

from delegraph import aot
from delegraph.errors import LoweringError
from delegraph.program import SerializationConfig, serialize_program
from delegraph_executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from delegraph_executorch.exir._serialize.data import (
    Cord,
    DataPayload,
    DataSerializer,
    NamedDataStore,
    NamedDataStoreOutput,
)
from delegraph_executorch.exir.schema import Buffer, Program, Tensor, TensorDataLocation
from delegraph_executorch.exir.tensor import TensorLayout

_IN_PLACE = SerializationConfig(constant_tensor_alignment=1, extract_delegate_segments=False)
"""Constants without padding between them, delegates in the flatbuffer."""


@dataclass
class EmitterOutput:
    """A program, and what is known about it.

    Maps are by method and instruction: to debug handles, to a delegate's name and its own map, to the number of
    results. `external_constant_map` has, for each `.ptd`, the indices of its tensors in `external_constant_buffer`.
    """

    program: Program
    debug_handle_map: dict[str, dict[int, Any]]
    method_to_delegate_debug_id_map: dict[str, dict[int, dict[str, Any]]]
    instruction_id_to_num_outs_map: dict[str, dict[int, int]]
    mutable_data: list[Buffer] | None
    external_constant_buffer: list[bytes]
    external_constant_map: dict[str, dict[str, int]] | None


def output_of(result: aot.ExecutorchProgramManager) -> EmitterOutput:
    """What ExecuTorch's emitter would have said of `result`."""
    file = deserialize_pte_binary(serialize_program(result.executorch_program, _IN_PLACE))
    file.program.named_data = None
    file.program.constant_buffer = file.program.constant_buffer or [Buffer(b"")]  # of which 0 stands for none
    file.program.execution_plan.sort(key=lambda plan: (plan.name in result.config_methods, plan.name))
    buffers: list[bytes] = []
    files: dict[str, dict[str, int]] = {}
    for name, external in result.tensor_data.items():
        tensors = {key: data for key, data in external.named_data.items() if data.tensor_layout is not None}
        for key, data in tensors.items():
            content = bytes(data.data)
            if content not in buffers:
                buffers.append(content)
            files.setdefault(name, {})[key] = buffers.index(content)
    return EmitterOutput(
        program=file.program,
        debug_handle_map={method: dict(handles) for method, handles in result.debug_handle_map.items()},
        method_to_delegate_debug_id_map={
            method: {step: {**one} for step, one in calls.items()} for method, calls in result.delegate_map.items()
        },
        instruction_id_to_num_outs_map={m: dict(counts) for m, counts in result.instruction_id_to_num_outs_map.items()},
        mutable_data=file.mutable_data,
        external_constant_buffer=buffers,
        external_constant_map=files,
    )


def emit_program(
    methods: ExportedProgram | Mapping[str, ExportedProgram],
    emit_stacktrace: bool = False,
    prim_getters: Mapping[str, Any] | None = None,
    emit_mutable_buffer_names: bool = False,
) -> EmitterOutput:
    """Emit edge programs, or programs that were emitted before. Raises `LoweringError` for anything else."""
    from delegraph_executorch.exir._execution import source_of

    by_method = methods if isinstance(methods, Mapping) else {"forward": methods}
    wrong = [name for name, program in by_method.items() if not isinstance(program, ExportedProgram)]
    if wrong:
        raise LoweringError(f"methods {wrong}: emit_program takes ExportedPrograms")
    programs = {name: source_of(program) for name, program in by_method.items()}
    config = aot.ExecutorchBackendConfig(
        emit_stacktrace=emit_stacktrace, emit_mutable_buffer_names=emit_mutable_buffer_names, check_kernels=False
    )
    return output_of(aot.EdgeProgramManager(programs, prim_getters).to_executorch(config))


def serialize_for_executorch(
    emitter_output: EmitterOutput,
    config: Any,
    data_serializer: DataSerializer,
    named_data_store: NamedDataStoreOutput | None = None,
) -> tuple[Cord, dict[str, Cord]]:
    """The program's bytes, and those of each file of external data by its name."""
    stored = named_data_store or NamedDataStoreOutput([], {}, {})
    file = PTEFile(
        emitter_output.program,
        emitter_output.mutable_data,
        NamedDataStoreOutput(stored.buffers, stored.pte_data, {}) if stored.pte_data else None,
    )
    pte = serialize_pte_binary(
        file,
        extract_delegate_segments=config.extract_delegate_segments,
        segment_alignment=config.segment_alignment,
        constant_tensor_alignment=config.constant_tensor_alignment,
        delegate_alignment=config.delegate_alignment,
    )
    external = _with_weights(emitter_output, stored)
    payloads = {tag: DataPayload(external.buffers, entries) for tag, entries in external.external_data.items()}
    return pte, {tag: data_serializer.serialize(payload) for tag, payload in payloads.items()}


def _with_weights(emitted: EmitterOutput, stored: NamedDataStoreOutput) -> NamedDataStoreOutput:
    """What delegates stored outside, and the model's external weights."""
    if not emitted.external_constant_map:
        return stored
    layouts = _external_layouts(emitted.program)
    store = NamedDataStore()
    for tag, indices in emitted.external_constant_map.items():
        for name, index in indices.items():
            content = emitted.external_constant_buffer[index]
            store.add_named_data(name, content, external_tag=tag, tensor_layout=layouts[name])
    store.merge_named_data_store(stored)
    return store.get_named_data_store_output()


def _external_layouts(program: Program) -> dict[str, TensorLayout]:
    """How each external tensor is laid out, by its name."""
    layouts: dict[str, TensorLayout] = {}
    for tensor in (value.val for plan in program.execution_plan for value in plan.values):
        info = tensor.extra_tensor_info if isinstance(tensor, Tensor) else None
        if info is not None and info.fully_qualified_name and info.location is TensorDataLocation.EXTERNAL:
            assert isinstance(tensor, Tensor)
            layouts[info.fully_qualified_name] = TensorLayout(tensor.scalar_type, tensor.sizes, tensor.dim_order)
    return layouts
