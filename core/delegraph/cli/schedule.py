"""`delegraph inspect m.pte --schedule`: the order in which instructions run here, and which delegates overlap.

The order is decided when a method is loaded, by the backends that are installed, so this loads the program.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegraph.runtime import Module

__all__ = ["show_schedule"]


def show_schedule(program: str | bytes, data: Sequence[str], kernels: Any, as_json: bool) -> None:
    """Print the steps of each method of `program`, a file or its content, whose weights may be in the files `data`;
    `kernels` is an order of libraries, as `delegraph.load` takes it."""
    from delegraph.runtime import load
    from delegraph.tables import Table, print_table

    module = load(program, data_path=list(data) or None, kernels=kernels)
    if as_json:
        print(json.dumps({"methods": {name: _steps(module, name) for name in module.methods}}, indent=2))
        return
    for name in module.methods:
        steps = enumerate(_steps(module, name))
        rows = [(str(n), step["does"], f"{step['chain']}:{step['instruction']}", step["name"]) for n, step in steps]
        columns = ("step", "does", "instruction", "calls")
        print_table(Table(f"{name}: order of execution", columns, rows, frozenset({"step"})))


def _steps(module: Module, method: str) -> list[dict[str, Any]]:
    return [
        {"does": step.kind.value, "chain": step.chain, "instruction": step.instruction, "name": step.name}
        for step in module[method].method.schedule
    ]
