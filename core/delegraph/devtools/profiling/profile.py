"""A `Profile`: where the time of a method's runs goes, for people, machines, notebooks, and viewers of traces."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from delegraph.devtools.profiling.groups import delegate_times, line_times, module_times
from delegraph.devtools.profiling.percentiles import percentile, times_json
from delegraph.devtools.profiling.times import DelegateTime, GroupTime, NodeTime
from delegraph.devtools.program_model.rows import MethodModel
from delegraph.runtime.execution.tracing import EventBlock

__all__ = ["Profile"]


@dataclass(frozen=True)
class Profile:
    """Traced runs of a method. `seconds` are those of each execution, behind `warmup` that do not count; `untraced`
    those of executions without a tracer, in turns with them. `nodes` are the steps, the slowest first; their times, and
    those of `modules`, `lines` and `delegates`, are in the same runs. `model` is the method that ran, and `blocks` the
    events of its load and of the last runs.
    """

    method: str
    warmup: int
    seconds: tuple[float, ...]
    untraced: tuple[float, ...]
    nodes: tuple[NodeTime, ...]
    model: MethodModel = field(repr=False)
    blocks: tuple[EventBlock, ...] = field(default=(), repr=False)

    @cached_property
    def modules(self) -> list[GroupTime]:
        """The modules of the model as a tree, each before those in it, whose times are in its own."""
        return module_times(self.nodes)

    @cached_property
    def lines(self) -> list[GroupTime]:
        """The lines of the model's code, the slowest first."""
        return line_times(self.nodes)

    @cached_property
    def delegates(self) -> list[DelegateTime]:
        """The delegates that ran, and whether their backends told of their nodes."""
        called = {row.instruction: row.delegate for row in self.model.calls if row.delegate is not None}
        return delegate_times(self.nodes, self.model.delegates, called)

    @property
    def cost(self) -> float:
        """The time that tracing adds to a run, as a share of its time without: 0.05 is 5 %."""
        return percentile(self.seconds, 50) / percentile(self.untraced, 50) - 1

    @property
    def precision(self) -> float:
        """The share by which the true median of an execution may lie beside the measured one (confidence 95 %)."""
        from delegraph.devtools.profiling.measuring import precision

        return precision(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; seconds."""
        return {
            "method": self.method,
            "runs": len(self.seconds),
            "warmup": self.warmup,
            "precision": self.precision,
            "seconds": times_json(self.seconds),
            "untraced_seconds": times_json(self.untraced),
            "cost": self.cost,
            "modules": [row.to_json() for row in self.modules],
            "lines": [row.to_json() for row in self.lines],
            "nodes": [row.to_json() for row in self.nodes],
            "delegates": [row.to_json() for row in self.delegates],
        }

    # ---- for people ----

    def __str__(self) -> str:
        from delegraph.devtools.profiling.tables import profile_tables, remarks

        return "\n\n".join([*remarks(self), *(str(table) for table in profile_tables(self) if table.rows)])

    def print(self) -> None:
        """Print to the terminal: with rich where it is installed, else as plain text."""
        from delegraph.devtools.profiling.tables import profile_tables, remarks
        from delegraph.tables import print_table, print_text

        for remark in remarks(self):
            print_text(remark)
        for table in profile_tables(self):
            print_table(table)

    def _repr_html_(self) -> str:
        """HTML for notebooks: the tables, and the flame graph."""
        from delegraph.devtools.profiling.tables import profile_tables, remarks
        from delegraph.notebook import paragraph, table

        return "".join([*map(paragraph, remarks(self)), *map(table, profile_tables(self)), self.flame_graph()])

    # ---- for viewers ----

    def flame_graph(self) -> str:
        """The SVG: modules, the lines in them, and the nodes of these, each as wide as its time."""
        from delegraph.devtools.profiling.flame_graph import draw_flame_graph

        return draw_flame_graph(self.nodes, f"{self.method}, median of {len(self.seconds)} runs")

    def trace(self) -> Mapping[str, Any]:
        """The load and the last runs as Chrome's trace events, which ui.perfetto.dev opens: an object for JSON."""
        from delegraph.devtools.profiling.perfetto import trace_events

        return trace_events(self.blocks, self.model)

    def save_flame_graph(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG, whole or not at all. Raises `OSError`."""
        _write(path, self.flame_graph())

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, whole or not at all. Raises `OSError`."""
        _write(path, json.dumps(self.trace(), separators=(",", ":")))


def _write(path: str | os.PathLike[str], text: str) -> None:
    from delegraph.program.files.atomic_file import write_atomically

    write_atomically(path, [text.encode()])
