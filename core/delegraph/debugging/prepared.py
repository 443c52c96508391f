"""An exported program -> its functional form, in which parts of it are tried, and the calls that each backend takes.

The functional form is the one in which every call gives a new value, torch's operators have their own names, and what a
backend asks for whole stands whole: parts of it can be cut out anywhere, and be lowered as programs of users are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.export import ExportedProgram

from delegraph.aot import pipeline
from delegraph.aot.config import LoweringConfig
from delegraph.aot.delegation.backends import Backend, partitioners_by_method
from delegraph.aot.delegation.cut import CutPartition
from delegraph.aot.export import export_requests
from delegraph.aot.graph.edit import as_torch_loads, copy_program
from delegraph.aot.graph.provenance import name_sources, source_call, source_of
from delegraph.aot.stage import Lowering
from delegraph.plugins.registry import default_registry

__all__ = ["METHOD", "Taken", "functional_form", "lowering_of", "prepared"]

METHOD = "forward"
"""The method of a program that is tried."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The calls that become one delegate; `backend` is the position of the one that takes them."""

    backend: int
    calls: tuple[str, ...]


def lowering_of(program: ExportedProgram, backends: Sequence[Backend]) -> Lowering:
    """The lowering of a program onto installed backends, before its first stage. Raises `PluginError`."""
    plugins = default_registry()
    return Lowering(
        plugins,
        LoweringConfig(),
        (METHOD,),
        requests=export_requests({METHOD: program}),
        partitioners=partitioners_by_method("backends", backends, [METHOD], plugins),
        transforms={METHOD: ()},
    )


def prepared(exported: ExportedProgram, backends: Sequence[Backend]) -> tuple[ExportedProgram, list[Taken]]:
    """The functional form, and the partitions that the backends, in order of priority, make of it; nothing is compiled.

    Raises `LoweringError`, and whatever a partitioner raises.
    """
    functional = _functional(exported, backends)
    program = functional.programs[METHOD]
    name_sources(program)
    working = functional.with_programs({METHOD: copy_program(program)})
    cut = pipeline.run(working, [pipeline.TO_EDGE, pipeline.PARTITION]) if backends else working
    order = list(functional.partitioners[METHOD])
    taken = [
        Taken(order.index(partition.partitioner), tuple(dict.fromkeys(_calls(program, partition))))
        for partition in cut.delegated.partitions.get(METHOD, ())
    ]
    return as_torch_loads(program), taken


def functional_form(exported: ExportedProgram, backends: Sequence[Backend]) -> ExportedProgram:
    """The functional form alone. Raises `LoweringError`."""
    return as_torch_loads(_functional(exported, backends).programs[METHOD])


def _functional(exported: ExportedProgram, backends: Sequence[Backend]) -> Lowering:
    stages = [pipeline.SETTINGS, pipeline.EXPORT, pipeline.QUANTIZE, pipeline.FUNCTIONAL]
    return pipeline.run(lowering_of(exported, backends), stages)


def _calls(program: ExportedProgram, partition: CutPartition) -> Iterator[str]:
    """The calls of the program that became the partition's; for one in a body, the calls that are given the body."""
    if partition.path:
        body = partition.path.partition(".")[0]
        for reference in program.graph.find_nodes(op="get_attr"):
            if reference.target == body:
                yield from (user.name for user in reference.users)
        return
    nodes = partition.lowered_module.original_module.graph.nodes
    yield from (source_call(source_of(node)) for node in nodes if node.op == "call_function")
