"""The name of a graph in an ETRecord -> the method whose runs are compared with it, and that method's programs.

None                                      exported_program if its nodes can be told, else the edge program
exported_program                          what torch.export gave: the ETRecord has it of `forward` alone
edge_dialect_exported_program[/method]    before delegation
name[/method]                             a further program, such as edge_after_transform
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.export import ExportedProgram

from delegraph.aot import ETRecord
from delegraph_executorch.devtools.inspector._methods import FORWARD, method_names, split_graph_name

__all__ = ["EDGE", "EXPORTED", "further_program", "method_to_compare", "programs_of"]

EXPORTED, EDGE = "exported_program", "edge_dialect_exported_program"


def method_to_compare(record: ETRecord, name: str | None, ran: Sequence[str]) -> str:
    """The method that the graph's name says, or the only one that `ran`. Raises `ValueError`."""
    known = method_names(record)
    method = split_graph_name(name or "", known)[1]
    if method is None and len(ran) > 1:
        raise ValueError(
            f"the ETDump has runs of {', '.join(ran)}; say which to compare:"
            f" calculate_numeric_gap(…, reference_graph='{EDGE}/{ran[0]}')"
        )
    if method is not None and ran and method not in ran:
        raise ValueError(f"the ETDump has no run of {method}, only of {', '.join(ran)}")
    return method or next(iter(ran), known[0] if len(known) == 1 else FORWARD)


def programs_of(record: ETRecord, method: str) -> tuple[ExportedProgram, ExportedProgram | None]:
    """The edge program of `method` and, if the record has it, the exported one. Raises `ValueError`."""
    edge, known = record.edge_dialect_program, method_names(record)
    if edge is None:
        raise ValueError("the ETRecord has no edge program to compare with; lower with generate_etrecord=True")
    programs = edge if isinstance(edge, dict) else {known[0] if len(known) == 1 else FORWARD: edge}
    if method not in programs:
        raise ValueError(f"the ETRecord has no edge program of {method}, only of {', '.join(programs)}")
    return programs[method], record.exported_program if method == FORWARD or len(programs) == 1 else None


def further_program(record: ETRecord, name: str) -> ExportedProgram:
    """The program `name/method` of the graph map. Raises `ValueError`."""
    graphs = record.graph_map or {}
    if name not in graphs:
        raise ValueError(
            f"Reference graph '{name}' not found. Available options: '{EXPORTED}', '{EDGE}', or one of the graphs in"
            f" graph_map: {[*graphs]}"
        )
    return graphs[name]
