"""Programs of any dialect <-> files (ExecuTorch `exir/serde/serialize.py`): torch's own, `torch.export.save`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from os import PathLike
from typing import BinaryIO

import torch
from torch.export import ExportedProgram

from delegraph.aot import graph_modules, is_delegate_call
from delegraph.errors import LoweringError

__all__ = ["deserialize", "load", "save", "serialize"]


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
    _check(ep_save)
    torch.export.save(ep_save, f, extra_files=dict(extra_files or {}))


def load(
    f: str | PathLike[str] | BinaryIO,
    *,
    extra_files: dict[str, object] | None = None,
    expected_opset_version: Mapping[str, int] | None = None,
) -> ExportedProgram:
    """Read what `save` wrote."""
    if expected_opset_version:
        raise LoweringError("expected_opset_version: torch checks the versions of its own operators; leave it out")
    return torch.export.load(f, extra_files=extra_files)


def serialize(exported_program: ExportedProgram, opset_version: Mapping[str, int] | None = None) -> bytes:
    """The bytes of the file that `save` writes."""
    file = io.BytesIO()
    save(exported_program, file, opset_version=opset_version)
    return file.getvalue()


def deserialize(artifact: bytes, expected_opset_version: Mapping[str, int] | None = None) -> ExportedProgram:
    """The program in such bytes."""
    return load(io.BytesIO(artifact), expected_opset_version=expected_opset_version)


def _check(program: ExportedProgram) -> None:
    for _, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if is_delegate_call(node):
                raise LoweringError(
                    f"{node.name} calls a delegate, which torch's files have no room for: save the program before it is"
                    " delegated, or the finished one as a .pte (to_executorch().save)",
                    node=node.name,
                )
