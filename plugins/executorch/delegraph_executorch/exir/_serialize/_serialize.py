"""What emission gave -> the bytes of a `.pte` and its `.ptd` files (ExecuTorch `exir/_serialize/_serialize.py`)."""

from __future__ import annotations

from typing import Any

from delegraph_executorch.exir._serialize._cord import Cord
from delegraph_executorch.exir._serialize._named_data_store import NamedDataStore, NamedDataStoreOutput
from delegraph_executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from delegraph_executorch.exir._serialize.data_serializer import DataPayload, DataSerializer
from delegraph_executorch.exir.emit._emit_program import EmitterOutput
from delegraph_executorch.exir.schema import Program, Tensor, TensorDataLocation
from delegraph_executorch.exir.tensor_layout import TensorLayout

__all__ = ["serialize_for_executorch"]


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
