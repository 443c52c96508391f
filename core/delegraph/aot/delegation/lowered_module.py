"""A compiled partition as a module, and the operator that calls it: a lowered program still runs in eager mode.

The operator is torch's own `torch.ops.higher_order.executorch_call_delegate`, which `torch.export` can trace, strictly
or not: `call_delegate(lowered_module, *inputs)` gives what the partition's original program gives. Eagerly that program
is run; under fake tensors it gives fakes; under tracing the call becomes one node again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule
from torch.fx.node import Node, has_side_effect
from torch.utils import _pytree as pytree

from delegraph.aot.graph.bodies import attributes, graph_modules
from delegraph.aot.graph.edit import copy_program, with_attributes
from delegraph.aot.memory_planning import MemoryPlanningPass
from delegraph.aot.torch_internals import DispatchModeKey, dispatch_mode, tree_flatten_spec
from delegraph.aot.torch_internals import executorch_call_delegate as call_delegate
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import BlobVariant, DelegationSpec, NamedDataStoreOutput, PreprocessResult
from delegraph.interfaces.stamp import BlobStamp
from delegraph.program.schema import CompileSpec, Program

__all__ = [
    "Compiled",
    "CompiledVariant",
    "LoweredBackendModule",
    "call_delegate",
    "flat_call",
    "flat_inputs",
    "get_lowered_module",
    "has_fallback",
    "is_delegate_call",
    "lowered_modules",
    "with_blobs",
]

_T = TypeVar("_T")

_HAS_FALLBACK: Final = "has_fallback"

MemoryPlanning: TypeAlias = "MemoryPlanningPass | Mapping[str, MemoryPlanningPass] | None"

has_side_effect(call_delegate)  # it may keep state: dead-code elimination must not remove it


@dataclass(frozen=True, slots=True)
class CompiledVariant:
    """Another blob of a delegate, its compile specs as they go into the file, and what it shares by key."""

    processed_bytes: bytes
    stamped_compile_specs: tuple[CompileSpec, ...]
    named_data_store_output: NamedDataStoreOutput | None


class LoweredBackendModule(torch.nn.Module):
    """One delegate: the blob that its backend made, and the program that the blob stands for.

    ExecuTorch's `exir/lowered_backend_module.py`. `meta` holds what the backend said of its blob: `debug_handle_map`,
    its instruction ids to debug handles, and `_delegate_info_meta` if it gave one. The weights of `original_module` are
    not parameters of this module: they are the delegate's business alone.
    """

    def __init__(
        self,
        edge_program: ExportedProgram,
        backend_id: str,
        processed_bytes: bytes,
        compile_specs: Sequence[CompileSpec],
        named_data_store_output: NamedDataStoreOutput | None = None,
    ) -> None:
        super().__init__()
        self._original_exported_program = _callable_in_place(edge_program) if edge_program else edge_program
        self._backend_id = backend_id
        self._processed_bytes = processed_bytes
        self._compile_specs = list(compile_specs)
        self._named_data_store_output = named_data_store_output
        self.meta: dict[str, Any] = {}
        self.tag = ""
        self.is_compiled = True
        self.variants: tuple[CompiledVariant, ...] = ()
        self.has_fallback = False
        """Whether the program is to be kept beside the blob."""
        self._stamp: BlobStamp | None = None

    @classmethod
    def without_blob(cls, program: ExportedProgram, spec: DelegationSpec, tag: str) -> LoweredBackendModule:
        """The delegate of a partition that its backend is still to compile: `compiled` takes the result."""
        module = cls(program, spec.backend_id, b"", spec.compile_specs)
        module.tag, module.is_compiled = tag, False
        return module

    def compiled(self, result: PreprocessResult, stamp: BlobStamp) -> LoweredBackendModule:
        """The delegate with the backend's `result` for its program, and the stamp that says which backend made it."""
        new = copy(self)
        new._processed_bytes = bytes(result.processed_bytes)
        new._named_data_store_output = result.data_store_output
        new.meta = {**self.meta, "debug_handle_map": dict(result.debug_handle_map or {})}
        if result._delegate_info_meta is not None:
            new.meta["_delegate_info_meta"] = result._delegate_info_meta
        new._stamp, new.is_compiled = replace(stamp, variant=result.variant), True
        new.variants = tuple(new._variant(variant, stamp) for variant in result.variants)
        return new

    def _variant(self, variant: BlobVariant, stamp: BlobStamp) -> CompiledVariant:
        specs = self._compile_specs if variant.compile_specs is None else variant.compile_specs
        stamped = (*specs, replace(stamp, variant=variant.name).to_compile_spec())
        return CompiledVariant(bytes(variant.processed_bytes), stamped, variant.data_store_output)

    @property
    def backend_id(self) -> str:
        """The backend that runs the blob."""
        return self._backend_id

    @property
    def processed_bytes(self) -> bytes:
        """The blob."""
        return self._processed_bytes

    @property
    def compile_specs(self) -> list[CompileSpec]:
        """The options that the partitioner, or the caller of `to_backend`, set for the backend."""
        return self._compile_specs

    @property
    def stamped_compile_specs(self) -> tuple[CompileSpec, ...]:
        """The compile specs as they go into the file: with the stamp that says who made the blob."""
        return (*self._compile_specs, *([self._stamp.to_compile_spec()] if self._stamp else []))

    @property
    def original_module(self) -> ExportedProgram:
        """The program that the blob stands for."""
        return self._original_exported_program

    @property
    def named_data_store_output(self) -> NamedDataStoreOutput | None:
        """The blobs that the delegate shares by key with others."""
        return self._named_data_store_output

    @property
    def debug_handle_map(self) -> Mapping[int, Sequence[int]] | Mapping[str, Sequence[int]]:
        """The backend's instruction ids -> debug handles of edge nodes."""
        return self.meta.get("debug_handle_map") or {}

    @property
    def debug_handles(self) -> tuple[int, ...]:
        """The debug handles of the partition's nodes, in graph order, each once."""
        calls = (node for node in self.original_module.graph.nodes if node.op == "call_function")
        handles = (node.meta.get("debug_handle") for node in calls)
        return tuple(dict.fromkeys(handle for handle in handles if isinstance(handle, int)))

    def program(self, emit_stacktrace: bool = False, memory_planning: MemoryPlanning = None) -> Program:
        """A finished program that does nothing but call this delegate: its records, as they go into a `.pte`."""
        return self._executorch(emit_stacktrace=emit_stacktrace, memory_planning=memory_planning).executorch_program

    def buffer(
        self,
        extract_delegate_segments: bool = False,
        segment_alignment: int = 128,
        constant_tensor_alignment: int | None = None,
        delegate_alignment: int | None = None,
        memory_planning: MemoryPlanning = None,
    ) -> bytes:
        """The bytes of such a program: a `.pte`."""
        return self._executorch(
            extract_delegate_segments=extract_delegate_segments,
            segment_alignment=segment_alignment,
            constant_tensor_alignment=constant_tensor_alignment,
            delegate_alignment=delegate_alignment,
            memory_planning=memory_planning,
        ).buffer

    def _executorch(self, memory_planning: MemoryPlanning, **options: Any) -> _FinishedProgram:
        from delegraph.aot import EdgeProgramManager, ExecutorchBackendConfig  # emission lies above this room
        from delegraph.aot.delegation.single_call import program_calling

        if memory_planning is not None:
            options["memory_planning_pass"] = memory_planning
        return EdgeProgramManager(program_calling(self)).to_executorch(ExecutorchBackendConfig(**options))

    def program_to_compile(self) -> ExportedProgram:
        """The program for the backend's `preprocess`: a graph of its own, weights shared."""
        program = copy_program(self.original_module)
        program.__class__ = ExportedProgram
        if self.has_fallback:
            program.graph_module.meta[_HAS_FALLBACK] = True
        return program

    def standing_for(self, program: ExportedProgram) -> LoweredBackendModule:
        """The same delegate as another form of its program calls it."""
        twin = copy(self)
        twin._original_exported_program = _callable_in_place(program)
        return twin

    def flat(self) -> LoweredBackendModule:
        """The same delegate, called with its inputs in a row, and giving its results as one tuple."""
        program = copy(self.original_module)
        inputs, outputs = program.graph_signature.user_inputs, program.graph_signature.user_outputs
        program._module_call_graph = [flat_call(len(inputs), len(outputs))]
        return self.standing_for(program)

    @property
    def is_flat(self) -> bool:
        """Whether it is called as `flat()` is."""
        spec = self.original_module.call_spec
        flat = flat_call(spec.in_spec.num_leaves, spec.out_spec.num_leaves).signature
        return flat is not None and (spec.in_spec, spec.out_spec) == (flat.in_spec, flat.out_spec)

    def forward(self, *args: object) -> object:
        return call_delegate(self, *args)

    def __deepcopy__(self, memo: dict[int, object]) -> LoweredBackendModule:
        if not self.is_compiled:  # the compiled one will stand in the place of this very object
            return self
        twin = self.standing_for(copy_program(self.original_module))
        twin._compile_specs, twin.meta = list(self._compile_specs), dict(self.meta)
        return twin


class _FinishedProgram(Protocol):
    """The records and the bytes of a program: an `ExecutorchProgramManager`, which is made above this room."""

    @property
    def executorch_program(self) -> Program: ...
    @property
    def buffer(self) -> bytes: ...


Compiled: TypeAlias = Mapping[LoweredBackendModule, LoweredBackendModule]
"""Delegates without a blob -> the same with one."""


def has_fallback(program: ExportedProgram) -> bool:
    """Whether a partition is to be kept in the file beside its blob (`lower(…, fallback=…)`), and reads its weights as
    they are: a backend that stores these as named data has them there once."""
    return bool(program.graph_module.meta.get(_HAS_FALLBACK))


def is_delegate_call(node: Node) -> bool:
    """Whether `node` calls a delegate."""
    return node.op == "call_function" and node.target is call_delegate


def get_lowered_module(root: torch.nn.Module, call: Node) -> LoweredBackendModule:
    """The lowered module that the delegate call `call`, a node of `root`'s graph, refers to."""
    reference = call.args[0]
    assert isinstance(reference, Node)
    module = root.get_submodule(str(reference.target))
    assert isinstance(module, LoweredBackendModule)
    return module


def lowered_modules(root: GraphModule) -> list[LoweredBackendModule]:
    """The delegates that a graph and the bodies of its control flow call; not those inside other delegates."""
    values = (value for _, module in graph_modules(root) for value in attributes(module).values())
    return [value for value in values if isinstance(value, LoweredBackendModule)]


def with_blobs(program: ExportedProgram, compiled: Compiled) -> ExportedProgram:
    """`program` with the compiled delegates in the place of those that were to be compiled; its graphs are the same."""
    if compiled.keys().isdisjoint(lowered_modules(program.graph_module)):
        return program

    def blob_for(value: object) -> object:
        return compiled.get(value, value) if isinstance(value, LoweredBackendModule) else value

    return with_attributes(program, blob_for)


# ---- running the original program ------------------------------------------------------------------


class _CallableInPlace(ExportedProgram):
    """A program that is run as it stands when a delegate call asks for its module.

    torch's operator, and dynamo, call `original_module.module()(*inputs)`. torch's own `module()` copies the graph at
    each call, and writes the program's buffers.
    """

    _buffers_kept: dict[str, torch.Tensor]

    def module(self, check_guards: bool = True) -> torch.nn.Module:  # type: ignore[override]
        return _PartitionRun(self)

    def kept_buffer(self, name: str) -> torch.Tensor:
        """The eager run's own value of the buffer `name`, which the partition changes; the model's stays as it was."""
        if name not in self._buffers_kept:
            self._buffers_kept[name] = _state(self, name).detach().clone()
        return self._buffers_kept[name]


def _callable_in_place(program: ExportedProgram) -> _CallableInPlace:
    new = copy(program)
    new.__class__ = _CallableInPlace
    assert isinstance(new, _CallableInPlace)
    new._buffers_kept = program._buffers_kept if isinstance(program, _CallableInPlace) else {}
    return new


class _PartitionRun(torch.nn.Module):
    """Runs a partition's program: eagerly on the buffers that it keeps, under a fake mode on fakes of its weights."""

    def __init__(self, program: _CallableInPlace) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: object) -> object:
        flat = flat_inputs(self.program, args)
        fake_mode = dispatch_mode(DispatchModeKey.FAKE)
        if fake_mode is None:
            outputs = _eager(self.program, flat)
        else:

            def fake_state(name: str) -> torch.Tensor:
                state = _state(self.program, name)
                return cast(torch.Tensor, fake_mode.from_tensor(state, static_shapes=True))

            outputs, _ = _run(self.program, flat, fake_state)
        return pytree.tree_unflatten(outputs, self.program.call_spec.out_spec)


def flat_inputs(program: ExportedProgram, args: Sequence[_T]) -> list[_T]:
    """The positional arguments of a call of `program`, in a row. Raises `LoweringError` where it needs others."""
    in_spec = program.call_spec.in_spec
    if in_spec is None:
        return list(args)
    if keywords := in_spec.child(1).context:
        raise LoweringError(
            f"the delegate's program takes keyword arguments, {', '.join(keywords)}; a delegate call has none: export"
            " the part of the model that is lowered with positional arguments"
        )
    return tree_flatten_spec((tuple(args), {}), in_spec)


def flat_call(inputs: int, outputs: int) -> ModuleCallEntry:
    """The calling convention of a partition: positional arguments, a tuple of results."""
    in_spec = pytree.tree_structure(((0,) * inputs, {}))
    out_spec = pytree.tree_structure((0,) * outputs)
    return ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))


def _eager(program: _CallableInPlace, inputs: Sequence[object]) -> list[object]:
    kept = set(program.graph_signature.buffers_to_mutate.values())
    outputs, changed = _run(
        program, inputs, lambda name: program.kept_buffer(name) if name in kept else _state(program, name)
    )
    for name, value in changed.items():
        program.kept_buffer(name).copy_(value)
    return outputs


def _run(
    program: ExportedProgram, inputs: Sequence[object], state: Callable[[str], torch.Tensor]
) -> tuple[list[object], dict[str, torch.Tensor]]:
    """The partition's outputs, and the new values of the buffers that it changes; `state` gives weights by name."""
    signature = program.graph_signature
    values = iter(inputs)
    arguments = [
        next(values) if spec.kind is InputKind.USER_INPUT else state(str(spec.target)) for spec in signature.input_specs
    ]
    with torch.no_grad():
        results = torch.fx.Interpreter(program.graph_module).run(*arguments, enable_io_processing=False)
    outputs, changed = [], {}
    for spec, value in zip(signature.output_specs, results, strict=True):
        if spec.kind is OutputKind.BUFFER_MUTATION:
            changed[str(spec.target)] = value
        else:
            outputs.append(value)
    return outputs, changed


def _state(program: ExportedProgram, name: str) -> torch.Tensor:
    tensors = program.state_dict if name in program.state_dict else program.constants
    return cast(torch.Tensor, tensors[name])
