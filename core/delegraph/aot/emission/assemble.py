"""Planned program, its delegates compiled by now -> ExecutorchProgramManager: the stage that takes the blobs in.

methods without blobs ─┐
blobs, compile specs   ├──> Program and `.ptd` files
named data, debug maps ┘
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from types import MappingProxyType
from typing import TypeAlias

import torch

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.lowered_module import Compiled, LoweredBackendModule, with_blobs
from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.delegation.report import Asked, FallbackEntry
from delegraph.aot.emission.alternatives import SharedData, variant_plan
from delegraph.aot.emission.debug_data import debug_data
from delegraph.aot.emission.fallback import Fallback
from delegraph.aot.emission.instructions import DelegateInfo
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.emission.stages import PlannedProgram
from delegraph.aot.graph.bodies import output_values
from delegraph.aot.graph.stored_tensor import external_data
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import NamedDataStoreOutput
from delegraph.program.alternatives import AlternativeOf
from delegraph.program.buffers import are_equal
from delegraph.program.contract import CONTRACT_KEY, write_contracts
from delegraph.program.debug_data import DEBUG_DATA_KEY, write_debug_data
from delegraph.program.files.costs import costs_of
from delegraph.program.files.serialize import program_pieces
from delegraph.program.flat_tensor import ExternalData, FlatTensor
from delegraph.program.schema import BackendDelegate, CompileSpec, ContainerMetadata, ExecutionPlan, NamedData, Program
from delegraph.program.shared_state import SHARED_STATE_KEY, write_shared_buffers
from delegraph.program.user_metadata import USER_METADATA_KEY, write_user_metadata
from delegraph.program.weights_origin import PROGRAM_KEY, WeightMark, WeightsOrigin, digest

__all__ = ["assemble"]


def assemble(
    planned: PlannedProgram,
    config: ExecutorchBackendConfig,
    compiled: Compiled,
    fallbacks: Sequence[Fallback] = (),
    seen: Mapping[str, Asked] = MappingProxyType({}),
) -> ExecutorchProgramManager:
    """The finished program; `compiled` are delegates that had no blobs when it was planned, `seen` the partitioners'
    answers by method.

    Raises `LoweringError` where two delegates store different bytes under one key."""
    emitted = planned.emitted
    delegates = {method.name: _delegates_of(method, compiled) for method in emitted.methods}
    made = [fallback for fallback in fallbacks if fallback.planned is not None]
    own = {fallback.of: _blobs_of(fallback) for fallback in made}
    named = _named_data([*(lowered for group in delegates.values() for lowered in group), *chain(*own.values())])
    data = SharedData(emitted.data, named.pte_data)
    plans = [
        *((plan, list(map(_record, delegates[plan.name]))) for plan in planned.plans),
        *((plan, ()) for plan in emitted.constant_methods),
    ]
    further = [
        *(variant for plan in planned.plans for variant in _variants(plan, delegates[plan.name])),
        *(_fallback_plan(fallback, own[fallback.of], data) for fallback in made),
    ]
    program = _program(planned, [*sorted(plans, key=_name), *sorted(further, key=_name)], named)
    files = _tensor_data(emitted.data.external_constants, named)
    if files:
        program, files = _with_origin(program, files)
    program = _with_named_data(program, _told(config, emitted.methods, delegates, seen))
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
        fallbacks=tuple(_entries(fallbacks, delegates, program)),
    )


def _entries(
    fallbacks: Sequence[Fallback], delegates: Mapping[str, Sequence[LoweredBackendModule]], program: Program
) -> Iterator[FallbackEntry]:
    costs = costs_of(program) if fallbacks else {}
    for fallback in fallbacks:
        of, backend_id = fallback.of, delegates[fallback.of.method][fallback.of.delegate].backend_id
        nbytes = costs.get(of.plan_name, 0)
        yield FallbackEntry(of.method, of.delegate, backend_id, fallback.runner, nbytes, fallback.reason)


def _delegates_of(method: EmittedMethod, compiled: Compiled) -> list[LoweredBackendModule]:
    return [compiled.get(lowered, lowered) for lowered in method.builder.delegates]


_Blob: TypeAlias = "tuple[str, bytes, tuple[CompileSpec, ...]]"
"""A delegate that is still to get its number: its backend's id, its bytes and its compile specs."""

_Plan: TypeAlias = "tuple[ExecutionPlan, Sequence[_Blob]]"
"""A plan without its delegates, and those."""


def _record(lowered: LoweredBackendModule) -> _Blob:
    return lowered.backend_id, lowered.processed_bytes, lowered.stamped_compile_specs


def _variants(plan: ExecutionPlan, delegates: Sequence[LoweredBackendModule]) -> Iterator[_Plan]:
    """The plans of the other blobs that delegates have."""
    for index, lowered in enumerate(delegates):
        outputs = len(output_values(lowered.original_module.graph)) if lowered.variants else 0
        for place, variant in enumerate(lowered.variants, 1):
            blob = (lowered.backend_id, variant.processed_bytes, variant.stamped_compile_specs)
            yield variant_plan(AlternativeOf(plan.name, index, place), plan, outputs), [blob]


def _blobs_of(fallback: Fallback) -> list[LoweredBackendModule]:
    """The delegates of a fall-back that was made."""
    assert fallback.planned is not None
    (method,) = fallback.planned.emitted.methods
    return _delegates_of(method, fallback.compiled or {})


def _fallback_plan(fallback: Fallback, delegates: Sequence[LoweredBackendModule], data: SharedData) -> _Plan:
    assert fallback.planned is not None
    (plan,) = fallback.planned.plans
    values = data.with_data(plan, fallback.planned.emitted.data)
    return replace(plan, values=values, container_meta_type=ContainerMetadata()), list(map(_record, delegates))


def _program(planned: PlannedProgram, plans: Sequence[_Plan], named: NamedDataStoreOutput) -> Program:
    """The program of these plans, whose blobs get their numbers in this order."""
    methods, data = planned.emitted.methods, planned.emitted.data
    numbers = count()
    mutable = data.mutable_data.buffers
    return Program(
        execution_plan=tuple(
            replace(plan, delegates=tuple(BackendDelegate(id_, next(numbers), specs) for id_, _, specs in blobs))
            for plan, blobs in plans
        ),
        constants=data.constants.buffers,
        mutable_data=mutable if len(mutable) > 1 else (),
        delegate_data=tuple(blob for _, blobs in plans for _, blob, _ in blobs),
        named_data=MappingProxyType({**named.pte_data, **_contracts(methods), **_shared_state(planned)}),
    )


def _contracts(methods: tuple[EmittedMethod, ...]) -> dict[str, NamedData]:
    """The contracts of the methods' inputs, as named data."""
    contracts = {method.name: method.contract for method in methods}
    return {CONTRACT_KEY: NamedData(write_contracts(contracts))} if contracts else {}


def _shared_state(planned: PlannedProgram) -> dict[str, NamedData]:
    """Which methods share their mutable buffers, as named data."""
    return {} if planned.shared is None else {SHARED_STATE_KEY: NamedData(write_shared_buffers(planned.shared))}


def _name(plan: _Plan) -> str:
    return plan[0].name


def _delegate_infos(method: EmittedMethod, compiled: Compiled) -> dict[int, DelegateInfo]:
    return {
        step: _delegate_info(compiled.get(lowered, lowered)) for step, lowered in method.builder.delegate_calls.items()
    }


def _delegate_info(lowered: LoweredBackendModule) -> DelegateInfo:
    info = DelegateInfo(name=lowered.backend_id, delegate_map=lowered.debug_handle_map)
    if "_delegate_info_meta" in lowered.meta:
        info["delegate_info_meta"] = lowered.meta["_delegate_info_meta"]
    return info


def _named_data(delegates: Iterable[LoweredBackendModule]) -> NamedDataStoreOutput:
    """The data that delegates share by key, each content once."""
    store = NamedDataStore()
    outputs = [
        (module, output)
        for module in delegates
        for output in (module.named_data_store_output, *(v.named_data_store_output for v in module.variants))
    ]
    for lowered, output in outputs:
        if output is None:
            continue
        try:
            store.merge(output)
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
    marked = {tag: replace(file, origin=origin) for tag, file in files.items()}
    return _with_named_data(program, {PROGRAM_KEY: origin.to_bytes()}), marked


def _told(
    config: ExecutorchBackendConfig,
    methods: Iterable[EmittedMethod],
    delegates: Mapping[str, Sequence[LoweredBackendModule]],
    seen: Mapping[str, Asked],
) -> dict[str, bytes]:
    """The words of a program about itself, which no run reads. They come behind the origin: other words, or a line
    that has moved, make no other program."""
    told = {}
    if config.metadata:
        told[USER_METADATA_KEY] = write_user_metadata(config.metadata)
    if config.emit_debug_data:
        by_method = {m.name: debug_data(m, delegates[m.name], seen.get(m.name, {})) for m in methods}
        told[DEBUG_DATA_KEY] = write_debug_data(by_method)
    return told


def _with_named_data(program: Program, named_data: Mapping[str, bytes]) -> Program:
    added = {key: NamedData(data) for key, data in named_data.items()}
    return replace(program, named_data=MappingProxyType({**program.named_data, **added}))
