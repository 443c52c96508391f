"""What a tap is: whose value, and where it lands among the program's outputs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TapSpec"]


@dataclass(frozen=True)
class TapSpec:
    """One tap. `output_index` counts the program's flat outputs; `fields` name the elements of what the reducer gives.

    `node_name` and `op_target` are the source node's when it was tapped, `module_path` and `module_class` the innermost
    module's that it belongs to.
    """

    node_name: str
    op_target: str
    output_index: int
    reducer_name: str
    fields: tuple[str, ...]
    stack_trace: str | None = None
    module_path: str | None = None
    module_class: str | None = None
