"""Planned program, its delegates compiled by now -> ExecutorchProgramManager: the stage that takes the blobs in.

methods without blobs ─┐
blobs, compile specs   ├──> Program and `.ptd` files
named data, debug maps ┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import TypeAlias

import torch

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.lowered_module import Compiled, LoweredBackendModule, with_blobs
from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.emission.instructions import DelegateInfo
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.emission.stages import PlannedProgram
from delegraph.aot.graph.stored_tensor import external_data
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import NamedDataStoreOutput
from delegraph.program.buffers import are_equal
from delegraph.program.contract import CONTRACT_KEY, write_contracts
from delegraph.program.files.serialize import program_pieces
from delegraph.program.flat_tensor import ExternalData, FlatTensor
from delegraph.program.schema import BackendDelegate, ExecutionPlan, NamedData, Program
from delegraph.program.shared_state import SHARED_STATE_KEY, write_shared_buffers
from delegraph.program.weights_origin import PROGRAM_KEY, WeightMark, WeightsOrigin, digest

__all__ = ["assemble"]


def assemble(planned: PlannedProgram, config: ExecutorchBackendConfig, compiled: Compiled) -> ExecutorchProgramManager:
    """The finished program; `compiled` are delegates that had no blobs when it was planned.

    Raises `LoweringError` where two delegates store different bytes under one key."""
    emitted = planned.emitted
    delegates = {method.name: _delegates_of(method, compiled) for method in emitted.methods}
    named = _named_data(delegates)
    program, files = _program(planned, delegates, named), _tensor_data(emitted.data.external_constants, named)
    if files:
        program, files = _with_origin(program, files)
    return ExecutorchProgramManager(
        executorch_program=program,
        config=config,
        exported_programs=MappingProxyType(
            {method.name: with_blobs(method.program, compiled) for method in emitted.methods}
        ),
        debug_handle_map={method.name: method.builder.debug_handles() for method in emitted.methods},
        delegate_map={method.name: _delegate_infos(method, compiled) for method in emitted.methods},
        instruction_id_to_num_outs_map={method.name: method.builder.output_counts() for method in emitted.methods},
        memory=planned.memory,
        tensor_data=files,
        node_values={method.name: method.node_values for method in emitted.methods},
    )


_Delegates: TypeAlias = Mapping[str, Sequence[LoweredBackendModule]]
"""The delegates of each method, in the order of their blobs."""


def _delegates_of(method: EmittedMethod, compiled: Compiled) -> list[LoweredBackendModule]:
    return [compiled.get(lowered, lowered) for lowered in method.builder.delegates]


def _program(planned: PlannedProgram, delegates: _Delegates, named: NamedDataStoreOutput) -> Program:
    methods, data = planned.emitted.methods, planned.emitted.data
    blobs = count()
    plans = [replace(plan, delegates=tuple(_records(delegates[plan.name], blobs))) for plan in planned.plans]
    mutable = data.mutable_data.buffers
    return Program(
        execution_plan=tuple(sorted([*plans, *planned.emitted.constant_methods], key=_name)),
        constants=data.constants.buffers,
        mutable_data=mutable if len(mutable) > 1 else (),
        delegate_data=tuple(lowered.processed_bytes for own in delegates.values() for lowered in own),
        named_data=MappingProxyType({**named.pte_data, **_contracts(methods), **_shared_state(planned)}),
    )


def _contracts(methods: tuple[EmittedMethod, ...]) -> dict[str, NamedData]:
    """The contracts of the methods' inputs, as named data."""
    contracts = {method.name: method.contract for method in methods}
    return {CONTRACT_KEY: NamedData(write_contracts(contracts))} if contracts else {}


def _shared_state(planned: PlannedProgram) -> dict[str, NamedData]:
    """Which methods share their mutable buffers, as named data."""
    return {} if planned.shared is None else {SHARED_STATE_KEY: NamedData(write_shared_buffers(planned.shared))}


def _name(plan: ExecutionPlan) -> str:
    return plan.name


def _records(delegates: Sequence[LoweredBackendModule], blobs: Iterator[int]) -> Iterator[BackendDelegate]:
    for lowered, blob in zip(delegates, blobs, strict=False):
        yield BackendDelegate(lowered.backend_id, blob, lowered.stamped_compile_specs)


def _delegate_infos(method: EmittedMethod, compiled: Compiled) -> dict[int, DelegateInfo]:
    return {
        step: _delegate_info(compiled.get(lowered, lowered)) for step, lowered in method.builder.delegate_calls.items()
    }


def _delegate_info(lowered: LoweredBackendModule) -> DelegateInfo:
    info = DelegateInfo(name=lowered.backend_id, delegate_map=lowered.debug_handle_map)
    if "_delegate_info_meta" in lowered.meta:
        info["delegate_info_meta"] = lowered.meta["_delegate_info_meta"]
    return info


def _named_data(delegates: _Delegates) -> NamedDataStoreOutput:
    """The data that delegates share by key, each content once."""
    store = NamedDataStore()
    for lowered in (lowered for own in delegates.values() for lowered in own):
        if lowered.named_data_store_output is None:
            continue
        try:
            store.merge(lowered.named_data_store_output)
        except ValueError as error:
            raise LoweringError(
                f"two delegates disagree, the second of backend {lowered.backend_id!r}: {error}; a backend shares data"
                " under a key that depends on their content"
            ) from error
    return store.get_named_data_store_output()


def _tensor_data(
    constants: Mapping[str, Mapping[str, torch.Tensor]], named: NamedDataStoreOutput
) -> dict[str, FlatTensor]:
    """The `.ptd` files, by tag: external constants by name, and what backends put there."""
    files: dict[str, dict[str, ExternalData]] = {
        tag: {name: external_data(tensor) for name, tensor in entries.items()} for tag, entries in constants.items()
    }
    for tag, blobs in named.external_data.items():
        entries = files.setdefault(tag, {})
        for key, blob in blobs.items():
            if key in entries and not _is_same(entries[key], blob):
                raise LoweringError(
                    f"{tag}.ptd would have two entries {key!r}: a weight of the model and other data of a backend; a"
                    " backend stores a weight under its name as it is, and what it makes of it under a key of its own"
                )
            entries[key] = blob
    return {tag: FlatTensor(MappingProxyType(entries), name=tag) for tag, entries in files.items()}


def _is_same(entry: ExternalData, other: ExternalData) -> bool:
    return entry.tensor_layout == other.tensor_layout and are_equal(entry.data, other.data)


def _with_origin(program: Program, files: Mapping[str, FlatTensor]) -> tuple[Program, dict[str, FlatTensor]]:
    """The program and its `.ptd` files, each with an origin by which loading tells whether they belong together."""
    weights = {
        key: WeightMark(str(entry.tensor_layout or "a blob"), digest([entry.data]))
        for file in files.values()
        for key, entry in file.named_data.items()
    }
    origin = WeightsOrigin(digest(program_pieces(program)), weights)
    named_data = {**program.named_data, PROGRAM_KEY: NamedData(origin.to_bytes())}
    marked = {tag: replace(file, origin=origin) for tag, file in files.items()}
    return replace(program, named_data=MappingProxyType(named_data)), marked
