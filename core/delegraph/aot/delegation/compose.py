"""Edge programs -> lowered programs: every backend, in order of priority, takes the calls it wants of those left.

    for each partitioner, for each method:
        source ── its form (forms.py) ── tags (partition.py) ── onto the source ── cut (cut.py) ──> source for the next

    before, backends=[a, b]         a has asked for linear       b has asked for gelu
        y = linear(x, w)                y = delegate_a(x)            y = delegate_a(x)
        z = gelu(y)                     z = gelu(y)                  z = delegate_b(y)
        s = softmax(z)                  s = softmax(z)               s = softmax(z)       left to kernels

A lowered program still runs in eager mode: a delegate call runs the program that was cut out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import getitem

from torch._ops import OpOverload
from torch.export import ExportedProgram

from delegraph.aot.delegation.compile import compile_or_refuse
from delegraph.aot.delegation.culprit import first_refused
from delegraph.aot.delegation.cut import CutPartition, cut_out
from delegraph.aot.delegation.external_constants import keep_from_blobs
from delegraph.aot.delegation.forms import form_of, onto_source
from delegraph.aot.delegation.lowered_module import Compiled, is_delegate_call, with_blobs
from delegraph.aot.delegation.partition import TAG, Partitioned, partition_program
from delegraph.aot.delegation.refusals import Refusal, Refused, hidden, reasons_against, refusal_of, without
from delegraph.aot.functional.decompose import Keep
from delegraph.aot.graph.bodies import graph_modules
from delegraph.aot.graph.edit import copy_program
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.provenance import name_sources, source_call, source_of
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.interfaces.lowering import Partitioner
from delegraph.logs import Logger
from delegraph.plugins.registry import PluginRegistry, default_registry

__all__ = ["Delegated", "Seen", "compile_partitions", "delegate", "merged"]


_log = Logger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """A call as a partitioner saw it, in the form that it had asked for, and its answer: a tag, or a reason against
    ("": it gave none). `name` is the node's in that form, a body's path before it."""

    name: str
    operator: str
    tag: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Delegated:
    """Programs by method, with the partitions that were cut out of them, and what every partitioner saw:
    `seen[method][partitioner]` maps a call of the source program (`graph.provenance`) to what that was in its form.
    `refusals` are those that the partitions were cut around."""

    programs: dict[str, ExportedProgram]
    partitions: dict[str, list[CutPartition]] = field(default_factory=dict)
    seen: dict[str, dict[str, Mapping[str, Sequence[Seen]]]] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()

    def with_blobs(self, compiled: Compiled) -> Delegated:
        """The same with compiled delegates."""
        partitions = {
            method: [
                replace(part, lowered_module=compiled.get(part.lowered_module, part.lowered_module)) for part in own
            ]
            for method, own in self.partitions.items()
        }
        programs = {method: with_blobs(program, compiled) for method, program in self.programs.items()}
        return replace(self, programs=programs, partitions=partitions)


def merged(first: Delegated, second: Delegated) -> Delegated:
    """The results of two steps of delegation, as those of one step."""
    methods = {**first.partitions, **second.partitions}
    return Delegated(
        {**first.programs, **second.programs},
        {method: [*first.partitions.get(method, ()), *second.partitions.get(method, ())] for method in methods},
        {m: {**first.seen.get(m, {}), **second.seen.get(m, {})} for m in {**first.seen, **second.seen}},
        tuple(dict.fromkeys([*first.refusals, *second.refusals])),
    )


def compile_partitions(
    delegated: Delegated, plugins: PluginRegistry | None = None, refusals: Sequence[Refusal] = ()
) -> Compiled:
    """The delegates that are still to be compiled, compiled by their backends.

    Raises as `compile_or_refuse`, and `Refused` for what a backend refuses; `refusals` were there before.
    """
    waiting = {
        method: {p.lowered_module: p for p in parts if not p.lowered_module.is_compiled}
        for method, parts in delegated.partitions.items()
    }
    plugins = plugins or default_registry()
    compiled, refused = compile_or_refuse({method: list(own) for method, own in waiting.items()}, plugins)
    if refused:
        raise Refused(
            [
                refusal_of(method, part, refused[module], refusals, partial(first_refused, method, part, plugins))
                for method, own in waiting.items()
                for module, part in own.items()
                if module in refused
            ]
        )
    return compiled


def delegate(
    programs: Mapping[str, ExportedProgram],
    partitioners: Mapping[str, Partitioner],
    keeps: Mapping[str, Mapping[str, Keep]] | None = None,
    changed_elsewhere: Mapping[str, Collection[str]] | None = None,
    plugins: PluginRegistry | None = None,
    refusals: Sequence[Refusal] = (),
) -> Delegated:
    """Cut out of every method the calls that the partitioners want, in order of priority; nothing is compiled yet.

    The names of `partitioners` stand in reports and messages. `keeps` says by method and partitioner which operators
    that one sees whole; what stands in `programs` whole for another one it sees decomposed. `changed_elsewhere` names
    by method the buffers that others change: they may come to share them, so no delegate takes their values as of now.
    What `refusals` name is left to others than those that refused it.
    The given programs are not changed; weights are not copied. Raises `InvalidPartition`, or `LoweringError` if a
    partitioner raised.
    """
    copies = {method: _working_copy(program) for method, program in programs.items()}
    result = Delegated(copies, refusals=tuple(refusals))
    for position, (name, partitioner) in enumerate(partitioners.items()):
        for method, source in result.programs.items():
            own = (keeps or {}).get(method, {})
            whole = frozenset[OpOverload]().union(*own.values())
            form = form_of(source, own.get(name, {}), whole)
            against = reasons_against(refusals, method, name)
            with hidden(form, against):
                partitioned = partition_program(form, partitioner, name=name, method=method)
            partitioned = without(partitioned, against)
            _leave_outside(partitioned.program, (changed_elsewhere or {}).get(method, ()))
            result.seen.setdefault(method, {})[name] = _seen(partitioned)
            if position + 1 < len(partitioners):  # behind the last one comes the decomposed form for kernels
                partitioned = onto_source(source, partitioned, own.get(name, {}), whole)
            keep_from_blobs(partitioned, plugins or default_registry())
            result.programs[method], partitions = cut_out(partitioned)
            result.partitions.setdefault(method, []).extend(partitions)
            _log.debug("%s takes %d partitions of %s", name, len(partitions), method)
    return result


def _leave_outside(program: ExportedProgram, names: Collection[str]) -> None:
    """The constants of these names are arguments of delegates, and belong to none."""
    for node, stored in ResolvedSignature.of(program).constants.items() if names else ():
        if stored.name in names:
            node.meta.pop(TAG, None)


def _seen(partitioned: Partitioned) -> dict[str, list[Seen]]:
    seen: dict[str, list[Seen]] = {}
    for path, module in graph_modules(partitioned.program.graph_module):
        for node in module.graph.nodes:
            if node.op != "call_function" or node.target is getitem or is_delegate_call(node):
                continue
            name = f"{path}.{node.name}" if path else node.name
            reason = partitioned.declined.get(name) or partitioned.declined.get(node.name) or ""
            answer = Seen(name, operator_name(node), node.meta.get(TAG), "" if TAG in node.meta else reason)
            seen.setdefault(source_call(source_of(node)), []).append(answer)
    return seen


def _working_copy(program: ExportedProgram) -> ExportedProgram:
    """A program whose graphs can be edited and whose calls have lasting names; weights are shared."""
    copy = copy_program(program)
    name_sources(copy)
    return copy
