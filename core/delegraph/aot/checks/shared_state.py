"""Methods that share their mutable buffers -> nothing, or an error for a delegate that would have one to itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping

from torch.export import ExportedProgram

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.kept_state import changed_buffers, held_buffers, kept_buffers
from delegraph.aot.delegation.lowered_module import LoweredBackendModule, lowered_modules
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.aot.graph.shared_names import buffer_memory
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.errors import LoweringError
from delegraph.plugins.registry import PluginRegistry

__all__ = ["check_shared_state"]


def check_shared_state(
    programs: Mapping[str, ExportedProgram], config: ExecutorchBackendConfig, plugins: PluginRegistry
) -> None:
    """Raise `LoweringError` where methods shall share buffers and share none, where they have a buffer under two names,
    and where a delegate keeps a shared buffer, and its backend can't share it."""
    sharing = {m: program for m, program in programs.items() if config.memory_planning(m).share_mutable_buffers}
    changed = set[str]().union(*map(changed_buffers, sharing.values()))
    _check_names(sharing, changed)
    _check_something_shared(sharing, changed)
    owners = Counter(name for program in sharing.values() for name in _owned(program))
    for method, program in sharing.items():
        for lowered in lowered_modules(program.graph_module):
            if copies := sorted(held_buffers(lowered) & changed):
                raise LoweringError(
                    f"method {method!r}: a delegate of {lowered.backend_id!r} has buffer {copies[0]!r} as a constant,"
                    " and another method changes it; lower the methods together, to_edge({…}).to_backend(…), so that it"
                    " stays outside, or set share_mutable_buffers=False"
                )
            shared = sorted(name for name in kept_buffers(lowered) if owners[name] > 1)
            if shared:
                _check_keeper(method, lowered, shared[0], config, plugins)


def _check_something_shared(sharing: Mapping[str, ExportedProgram], changed: Collection[str]) -> None:
    own = {
        method: dict.fromkeys(name for each in _with_delegates(program) for name in _stored(each, changed))
        for method, program in sharing.items()
    }
    having = Counter(name for names in own.values() for name in names)
    if len(sharing) > 1 and changed and all(having[name] < 2 for name in changed):
        listed = "; ".join(f"{method!r} has {', '.join(map(repr, names)) or 'none'}" for method, names in own.items())
        raise LoweringError(
            "share_mutable_buffers=True, and the methods have no buffer in common that one of them changes:"
            f" {listed}. Shared are buffers that are one tensor or have one name: export the methods from one module,"
            " or set share_mutable_buffers=False"
        )


def _check_names(sharing: Mapping[str, ExportedProgram], changed: Collection[str]) -> None:
    names: dict[Hashable, tuple[str, str]] = {}
    buffers = [
        (method, name, memory)
        for method, program in sharing.items()
        for each in _with_delegates(program)
        for name, memory in buffer_memory(each).items()
    ]
    for method, name, memory in buffers:
        first, known = names.setdefault(memory, (method, name))
        if known != name and method != first and not {known, name}.isdisjoint(changed):
            raise LoweringError(
                f"method {method!r}: its buffer {name!r} is buffer {known!r} of {first!r}, and cannot be shared under"
                " two names (share_mutable_buffers=True): lower the methods in one call of delegraph.lower, and if"
                f" {method!r} has another buffer {known!r}, call that otherwise"
            )


def _with_delegates(program: ExportedProgram) -> list[ExportedProgram]:
    return [program, *(lowered.original_module for lowered in lowered_modules(program.graph_module))]


def _stored(program: ExportedProgram, changed: Collection[str]) -> list[str]:
    """The names of buffers, and of the parameters that training changes."""
    signature = program.graph_signature
    trained = [name for name in signature.inputs_to_parameters.values() if name in changed]
    return [*signature.inputs_to_buffers.values(), *trained]


def _owned(program: ExportedProgram) -> list[str]:
    """The buffers of a method, once for its own calls and once for each delegate that keeps them."""
    signature = ResolvedSignature.of(program)
    own = [stored.name for stored in (*signature.states.values(), *signature.constants.values())]
    return own + [name for lowered in lowered_modules(program.graph_module) for name in kept_buffers(lowered)]


def _check_keeper(
    method: str,
    lowered: LoweredBackendModule,
    name: str,
    config: ExecutorchBackendConfig,
    plugins: PluginRegistry,
) -> None:
    if not getattr(find_lowering(lowered.backend_id, plugins)[1], "shares_state", False):
        raise LoweringError(
            f"method {method!r}: a delegate of {lowered.backend_id!r} keeps buffer {name!r} for itself, and others are"
            " to share it (share_mutable_buffers=True); let the partitioner leave it outside"
            " (take_mutated_buffers=False, no tag_mutated_buffer), or the backend take its memory from"
            " BackendInitContext.mutable_buffer and say so (BackendDetails.shares_state)"
        )
    if not config.emit_mutable_buffer_names:
        raise LoweringError(
            f"method {method!r}: a delegate of {lowered.backend_id!r} and others share buffer {name!r} by its name,"
            " which emit_mutable_buffer_names=False leaves out of the file; leave that option at its default"
        )
