"""Programs of any dialect <-> files (ExecuTorch `exir/serde/serialize.py`): torch's own, `torch.export.save`.

A file has torch's operators; that a program is in the edge dialect stands beside it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from os import PathLike
from typing import BinaryIO

import torch
from torch.export import ExportedProgram

from delegraph.aot import EdgeOpOverload, graph_modules, is_delegate_call, use_edge_operators
from delegraph.errors import LoweringError
from delegraph_executorch.exir._execution import with_torch_operators

__all__ = ["deserialize", "load", "save", "serialize"]

_DIALECT = "delegraph_dialect"
"""The extra file that says in which dialect a program is."""


def save(
    ep_save: ExportedProgram,
    f: str | PathLike[str] | BinaryIO,
    *,
    extra_files: Mapping[str, object] | None = None,
    opset_version: Mapping[str, int] | None = None,
) -> None:
    """Write a program. Raises `LoweringError` for one with delegates, which a `.pte` holds."""
    if opset_version:
        raise LoweringError("opset_version: torch writes the versions of its own operators; leave the argument out")
    files = dict(extra_files or {})
    if _is_edge(ep_save):
        files[_DIALECT] = "edge"
        ep_save = with_torch_operators(ep_save)
    torch.export.save(ep_save, f, extra_files=files)


def load(
    f: str | PathLike[str] | BinaryIO,
    *,
    extra_files: dict[str, object] | None = None,
    expected_opset_version: Mapping[str, int] | None = None,
) -> ExportedProgram:
    """Read what `save` wrote."""
    if expected_opset_version:
        raise LoweringError("expected_opset_version: torch checks the versions of its own operators; leave it out")
    files: dict[str, object] = {_DIALECT: "", **(extra_files or {})}
    program = torch.export.load(f, extra_files=files)
    if files.pop(_DIALECT) in ("edge", b"edge"):
        use_edge_operators(program.graph_module)
    if extra_files is not None:
        extra_files.update(files)
    return program


def serialize(exported_program: ExportedProgram, opset_version: Mapping[str, int] | None = None) -> bytes:
    """The bytes of the file that `save` writes."""
    file = io.BytesIO()
    save(exported_program, file, opset_version=opset_version)
    return file.getvalue()


def deserialize(artifact: bytes, expected_opset_version: Mapping[str, int] | None = None) -> ExportedProgram:
    """The program in such bytes."""
    return load(io.BytesIO(artifact), expected_opset_version=expected_opset_version)


def _is_edge(program: ExportedProgram) -> bool:
    """Whether some operator is the edge dialect's. Raises `LoweringError` for a program with delegates."""
    edge = False
    for _, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            edge = edge or isinstance(node.target, EdgeOpOverload)
            if is_delegate_call(node):
                raise LoweringError(
                    f"{node.name} calls a delegate, which torch's files have no room for: save the program before it is"
                    " delegated, or the finished one as a .pte (to_executorch().save)",
                    node=node.name,
                )
    return edge
