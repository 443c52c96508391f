"""The rows of `paths.txt`, read: for the import system (`finding.py`), and for the build."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BESIDE", "PACKAGE", "homes_in", "rows"]

PACKAGE = "delegraph_executorch"
BESIDE = "*"
"""The home of names that the wheel's module of the row's path has."""


def rows(text: str) -> dict[str, str]:
    """The table's rows: a path, and the modules that have its names."""
    return dict(line.split(" = ", 1) for line in text.splitlines() if line[:1] not in "# ")


def homes_in(row: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The modules in a row, each with the names that it has: (name there, name here); none for all of them.

    `".exir.tensor: TensorSpec; torch.export: ExportedProgram as Program"`: a dot begins a module of this package.
    """
    for home in row.split(";"):
        module, _, names = home.strip().partition(":")
        pairs = [name.strip().partition(" as ") for name in names.split(",") if name.strip()]
        yield (PACKAGE if module.startswith(".") else "") + module, [(there, here or there) for there, _, here in pairs]
