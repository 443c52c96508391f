"""Level `partitions`: a partitioner changes tags alone, does the same twice, and says why it left the rest."""

from __future__ import annotations

from torch.export import ExportedProgram

from delegraph.aot import edge_program, graph_modules
from delegraph.plugins import default_registry
from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.edge_programs import exported, weights
from delegraph_testkit.lowering import asked_for, lowered_onto, quantized_as_claimed
from delegraph_testkit.models import example

__all__ = [
    "lowering_is_repeatable",
    "nothing_but_tags_is_changed",
    "weights_are_left_alone",
    "what_is_left_has_a_reason",
    "what_is_taken_is_compiled",
]


def nothing_but_tags_is_changed(bench: Bench, stored: Stored) -> None:
    """`partition` leaves the graph as it is, but for tags."""
    partitioner = default_registry().create("partitioners", bench.subject.name, bench.subject.claims.options)
    source = example(stored.name)
    programs = quantized_as_claimed(bench.subject, source)
    for method in source.modules:
        program = edge_program(programs[method] if programs else exported(source, method), partitioner)
        before = _described(program)
        partitioner.partition(program)
        changed = [
            f"{now} (it was {then})" for then, now in zip(before, _described(program), strict=False) if then != now
        ]
        assert not changed and len(before) == len(_described(program)), (
            f"{stored.name}: it changed the graph: {changed[:3]}"
        )


def _described(program: ExportedProgram) -> list[str]:
    return [
        f"{path}.{node.name}: {node.op} {node.target} {node.args} {node.kwargs}"
        for path, module in graph_modules(program.graph_module)
        for node in module.graph.nodes
    ]


def lowering_is_repeatable(bench: Bench, stored: Stored) -> None:
    """The same model is the same file, to the byte."""
    source = example(stored.name)
    again = bytes(lowered_onto(source, [asked_for(bench.subject)], quantized_as_claimed(bench.subject, source)))
    assert again == stored.file.read_bytes(), f"{stored.name} lowered twice is two different files"


def weights_are_left_alone(bench: Bench, stored: Stored) -> None:
    """Lowering changes no byte of the user's weights and buffers."""
    source = example(stored.name)
    quantized = quantized_as_claimed(bench.subject, source)
    programs = quantized or {method: exported(source, method) for method in source.modules}
    before = {method: weights(program) for method, program in programs.items()}
    lowered_onto(source, [asked_for(bench.subject)], programs)
    for method, program in programs.items():
        now = weights(program)
        changed = [name for name, content in before[method].items() if now[name] != content]
        assert not changed, (
            f"{stored.name}: it changed weights of the user's model, {', '.join(changed)}: change copies"
        )


def what_is_left_has_a_reason(bench: Bench, stored: Stored) -> None:
    """Every node that is left has a reason, which users read in their report."""
    silent = [operator for operator, reason in stored.facts.left.items() if "gave no reason" in reason or not reason]
    assert not silent, f"{stored.name}: no reason is given for {', '.join(silent)}"


def what_is_taken_is_compiled(bench: Bench, stored: Stored) -> None:
    """`preprocess` refuses nothing that `partition` takes."""
    refused = stored.facts.refused
    assert not refused, f"{stored.name}: the partitioner is to decline what its backend refuses: {refused[0]}"
