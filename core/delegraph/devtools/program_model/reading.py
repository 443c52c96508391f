"""A program -> its model: kernels' calls and the nodes of delegates as rows, with what the file says they come from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from delegraph.devtools.program_model.rows import (
    BESIDE,
    DelegateRow,
    MethodModel,
    NodeRow,
    Origin,
    ProgramModel,
    WeightRow,
)
from delegraph.devtools.program_model.weight_names import names_of
from delegraph.errors import DelegraphError, PluginNotFound
from delegraph.interfaces.description import DelegateDescription, DelegateNode, DelegateWeight
from delegraph.plugins.blob_views import describe
from delegraph.plugins.registry import PluginRegistry, default_registry
from delegraph.program.alternatives import methods_of
from delegraph.program.buffers import byte_view
from delegraph.program.checks.verify_values import is_external
from delegraph.program.debug_data import DebugData, StepId, debug_data_of
from delegraph.program.dtypes import dtype_info, nbytes
from delegraph.program.files.content_pool import first_equals
from delegraph.program.schema import (
    BackendDelegate,
    Buffer,
    Chain,
    DelegateCall,
    ExecutionPlan,
    KernelCall,
    Program,
    Tensor,
)
from delegraph.program.walk import tensor_indices

__all__ = ["load_model", "read_model"]


def load_model(
    source: str | os.PathLike[str] | Buffer | Program,
    data_path: Sequence[str] | None = None,
    plugins: PluginRegistry | None = None,
) -> ProgramModel:
    """The model of a `.pte`, with its external weights in `data_path`. Nothing of it runs, and no engine is needed.

    Raises `AccessFailed`, `InvalidProgram` and `InvalidExternalData`.
    """
    from delegraph.runtime.program import Program as LoadedProgram
    from delegraph.runtime.program import Verification

    loaded = LoadedProgram.load(source, verification=Verification.Minimal, data_path=data_path or None)
    return read_model(loaded.records, loaded.named_data, plugins or default_registry())


def read_model(program: Program, named_data: Mapping[str, Buffer], plugins: PluginRegistry) -> ProgramModel:
    """The model of `program`; `named_data` are its own and those of its `.ptd` files."""
    origins, places = debug_data_of(program), _places(program)
    return ProgramModel(
        tuple(
            _Reader(program, plan, origins.get(plan.name, DebugData()), named_data, plugins, places).read()
            for plan in methods_of(program)
        )
    )


def _places(program: Program) -> dict[int, str]:
    """The place of each blob, by its number: the first delegate that has it, or one of the same bytes."""
    places: dict[int, str] = {}
    first = first_equals(program.delegate_data)
    for plan in methods_of(program):
        for index, record in enumerate(plan.delegates):
            same = places.setdefault(first[record.processed], f"delegate {index} of {plan.name}")
            places[record.processed] = same
    return places


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one method."""

    program: Program
    plan: ExecutionPlan
    debug_data: DebugData
    named_data: Mapping[str, Buffer]
    plugins: PluginRegistry
    places: Mapping[int, str]

    def read(self) -> MethodModel:
        delegates = tuple(self._delegate(index, record) for index, record in enumerate(self.plan.delegates))
        nodes: list[NodeRow] = []
        constants = dict(self._constants())
        weights = list(constants.values())
        calls: dict[int, NodeRow] = {}
        for chain in self.plan.chains:
            for number, instruction in enumerate(chain.instructions):
                if isinstance(instruction, KernelCall):
                    nodes.append(self._kernel_call(chain, number, instruction, constants))
                elif isinstance(instruction, DelegateCall) and instruction.delegate_index not in calls:
                    inside = _Inside(self, delegates[instruction.delegate_index], number)
                    calls[instruction.delegate_index] = inside.whole
                    nodes += inside.nodes
                    weights += inside.weights
        sources = self.debug_data.nodes
        return MethodModel(self.plan.name, tuple(nodes), tuple(weights), delegates, tuple(calls.values()), sources)

    def _delegate(self, index: int, record: BackendDelegate) -> DelegateRow:
        blob = self.program.delegate_data[record.processed]
        described: DelegateDescription | None = None
        try:
            described = describe(
                record.id,
                f"delegate {index} of {self.plan.name}",
                blob,
                record.compile_specs,
                self.named_data,
                self.plugins,
            )
            reason = "" if described else "this backend does not describe its blobs"
        except PluginNotFound:
            reason = "its backend is not installed here"
        except DelegraphError as error:
            reason = str(error)
        specs = {spec.key: spec.value for spec in record.compile_specs}
        size, place = byte_view(blob).nbytes, self.places[record.processed]
        return DelegateRow(self.plan.name, index, record.id, size, place, described, reason, specs)

    # ---- what the host runs ----

    def _kernel_call(self, chain: Chain, number: int, call: KernelCall, constants: Mapping[int, WeightRow]) -> NodeRow:
        handles = self.debug_data.instructions.get(number, ()) if chain is self.plan.chains[0] else ()
        origin = self.origin(handles)
        if not origin.lines and chain.stacktrace and chain.stacktrace[number]:
            frame = chain.stacktrace[number][-1]
            origin = Origin(origin.operators, origin.modules, (f"{frame.filename}:{frame.lineno}, in {frame.name}",))
        read = dict.fromkeys(tensor_indices(call.args, self.plan.values))
        names = [constants[index].label for index in read if index in constants]
        operator = str(self.plan.operators[call.op_index])
        left = dict.fromkeys(self.debug_data.left[handle] for handle in handles if handle in self.debug_data.left)
        row = NodeRow(self.plan.name, number, None, str(number), operator, handles, origin, tuple(names))
        return replace(row, reason="; ".join(left))

    def _is_constant(self, index: int) -> bool:
        value = self.plan.values[index]
        return isinstance(value, Tensor) and (bool(value.data_buffer_idx) or is_external(value))

    def _constants(self) -> Iterator[tuple[int, WeightRow]]:
        """The tensors that kernels read from the file, or that begin with something of it, by value."""
        handles: dict[int, list[int]] = {}
        for number, call in enumerate(self.plan.chains[0].instructions if self.plan.chains else ()):
            for index in tensor_indices(call.args, self.plan.values) if isinstance(call, KernelCall) else ():
                handles.setdefault(index, []).extend(self.debug_data.instructions.get(number, ()))
        for index, value in enumerate(self.plan.values):
            if not isinstance(value, Tensor) or not self._is_constant(index):
                continue
            place, data = self._stored(value)
            size = nbytes(value.scalar_type, value.sizes) if data is None else byte_view(data).nbytes
            names = self._names(index, value)
            dtype = dtype_info(value.scalar_type).name
            stored = " and ".join(names) if place == BESIDE else f"{place} {value.data_buffer_idx}"
            shape, origin = tuple(value.sizes), self.origin(dict.fromkeys(handles.get(index, ())))
            yield index, WeightRow(self.plan.name, None, names, stored, dtype, shape, size, place, origin, data)

    def _stored(self, value: Tensor) -> tuple[str, Buffer | None]:
        if is_external(value) and value.extra_tensor_info is not None:
            return BESIDE, self.named_data.get(value.extra_tensor_info.fully_qualified_name or "")
        if value.allocation_info is None:
            return "constants", self.program.constants[value.data_buffer_idx]
        return "initial state", self.program.mutable_data[value.data_buffer_idx]

    def _names(self, index: int, value: Tensor) -> tuple[str, ...]:
        said = value.extra_tensor_info.fully_qualified_name if value.extra_tensor_info else None
        return self.debug_data.constants.get(index, (said,) if said else ())

    def origin(self, handles: Iterable[int]) -> Origin:
        """The origin of what has these debug handles."""
        known = [node for handle in handles if (node := self.debug_data.nodes.get(handle)) is not None]
        return Origin(
            tuple(dict.fromkeys(name for node in known for name in node.operators)),
            tuple(dict.fromkeys(node.module for node in known if node.module)),
            tuple(dict.fromkeys(node.line for node in known if node.line)),
            known[-1].results if known else (),
            tuple(dict.fromkeys(name for node in known for name in node.weights)),
        )


class _Inside:
    """The rows of a delegate that `instruction` calls."""

    def __init__(self, reader: _Reader, row: DelegateRow, instruction: int) -> None:
        self.reader, self.row, self.instruction = reader, row, instruction
        steps = reader.debug_data.delegates[row.index : row.index + 1]
        described: Sequence[DelegateNode] = row.described.nodes if row.described else ()
        self.readers = _readers(described)
        self.handles = _handles(described, self.readers, steps[0] if steps else {})
        stored: Sequence[DelegateWeight] = row.described.weights if row.described else ()
        self.weights = [self._weight(weight) for weight in stored]
        """The stored weights, each by the names of the model's weights, if they can be told."""
        labels = {weight.stored: weight.label for weight in self.weights}
        self.whole = self._whole()
        self.nodes = [self._node(node, labels) for node in described] or [self.whole]
        """One for each node; of a delegate that is not described, one for all of it."""

    def _node(self, node: DelegateNode, labels: Mapping[str, str]) -> NodeRow:
        handles = self.handles[node.name]
        reads = tuple(labels[name] for name in node.inputs if name in labels)
        origin = self.reader.origin(handles)
        method, place = self.reader.plan.name, self.row.index
        return NodeRow(method, self.instruction, place, node.name, node.operator, handles, origin, reads, node.debug_id)

    def _whole(self) -> NodeRow:
        method, backend = self.reader.plan.name, self.row.backend
        handles = self.reader.debug_data.instructions.get(self.instruction, ())
        origin = self.reader.origin(handles)
        return NodeRow(method, self.instruction, self.row.index, backend, backend, handles, origin)

    def _weight(self, weight: DelegateWeight) -> WeightRow:
        read_by = self.readers.get(weight.name, ())
        origin = self.reader.origin(dict.fromkeys(handle for node in read_by for handle in self.handles[node.name]))
        return WeightRow(
            self.row.method,
            self.row.index,
            names_of(weight, origin.weights, self.reader.debug_data.weights),
            weight.name,
            weight.dtype,
            weight.shape,
            weight.nbytes,
            self.row.place if weight.key is None else f"named data {weight.key}",
            origin,
            weight.data,
        )


def _readers(nodes: Sequence[DelegateNode]) -> dict[str, list[DelegateNode]]:
    """The nodes that read each value or weight."""
    readers: dict[str, list[DelegateNode]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    return readers


def _handles(
    nodes: Sequence[DelegateNode],
    readers: Mapping[str, Sequence[DelegateNode]],
    steps: Mapping[StepId, tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """The debug handles of each node; one that has none of its own, which an engine added, has those of the nodes that
    read what it gives."""
    handles = {node.name: steps.get(node.debug_id, ()) if node.debug_id is not None else () for node in nodes}
    for node in reversed(nodes):
        if not handles[node.name]:
            results = [output.name for output in node.outputs] or [node.name]
            read_by = (reader.name for result in results for reader in readers.get(result, ()))
            handles[node.name] = tuple(dict.fromkeys(handle for name in read_by for handle in handles[name]))
    return handles
