"""`delegraph inspect m.pte --sizes` and `--nodes`: where the bytes are, and what runs, through delegates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegraph.devtools.program_model.rows import DelegateRow, NodeRow, ProgramModel
    from delegraph.devtools.summary import FileSizes
    from delegraph.program.schema import Program

__all__ = ["show_modules", "show_nodes", "show_sizes"]


def show_sizes(program: Program, data: Sequence[str], sizes: FileSizes, as_json: bool) -> None:
    """Print where the bytes of `program` are; its weights may be in the files `data`."""
    from delegraph.devtools.program_model.reading import load_model
    from delegraph.devtools.program_model.sizes import sizes_of
    from delegraph.devtools.program_model.tables import size_tables
    from delegraph.tables import print_table

    model = load_model(program, data)
    told = sizes_of(program, model, sizes)
    if as_json:
        print(json.dumps({**told.to_json(), "delegates": _delegates_json(model)}, indent=2))
        return
    for table in size_tables(told):
        print_table(table)
    for row in model.delegates:
        if row.described is None:
            print(f"delegate {row.index} of {row.method} ({row.backend}) is one piece here: {row.reason}")


def show_modules(program: Program) -> None:
    """Print which modules of the model have the largest weights, if the file tells."""
    from delegraph.devtools.program_model.reading import load_model
    from delegraph.devtools.program_model.sizes import module_sizes
    from delegraph.devtools.program_model.tables import module_table
    from delegraph.tables import print_table

    modules = list(module_sizes(load_model(program).weights))
    if len(modules) > 1:
        print_table(module_table(modules, _IN_SHORT))
        print("--sizes shows every part and weight, --nodes every step, in delegates too\n")


_IN_SHORT = 12
"""Modules in the summary."""


def show_nodes(program: Program, data: Sequence[str], as_json: bool) -> None:
    """Print the steps of `program`, those in delegates as well, with the modules and lines that they come from."""
    from delegraph.devtools.program_model.reading import load_model
    from delegraph.devtools.program_model.tables import node_tables
    from delegraph.tables import print_table

    model = load_model(program, data)
    if as_json:
        nodes = [_node_json(row) for row in model.nodes]
        print(json.dumps({"nodes": nodes, "delegates": _delegates_json(model)}, indent=2))
        return
    for method in model.methods:
        for table in node_tables(method):
            print_table(table)


def _node_json(row: NodeRow) -> dict[str, Any]:
    return {**asdict(row), "module": row.origin.module}


def _delegates_json(model: ProgramModel) -> list[dict[str, Any]]:
    return [_delegate_json(row) for row in model.delegates]


def _delegate_json(row: DelegateRow) -> dict[str, Any]:
    known = {"method": row.method, "index": row.index, "backend": row.backend, "nbytes": row.nbytes}
    if row.described is None:
        return {**known, "described": False, "reason": row.reason}
    told = row.described
    return {**known, "described": True, "device": told.device, "options": dict(told.options), "parts": dict(told.parts)}
