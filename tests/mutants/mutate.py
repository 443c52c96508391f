"""Pytest in this process, with one line of one module changed as it is imported; files stay as they are.

python -m tests.mutants.mutate MODULE OLD NEW PYTEST_ARGUMENT …
"""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest

__all__ = ["change"]


def change(module: str, old: str, new: str) -> None:
    """Have `module` imported with `new` in the place of `old`, which its source has once."""
    compiled = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if name != module:
            return compiled(loader, name)
        source = Path(loader.path).read_text("utf-8")
        assert source.count(old) == 1, f"{module} has {source.count(old)} of {old!r}"
        return compile(source.replace(old, new), loader.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


if __name__ == "__main__":
    change(*sys.argv[1:4])
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[4:]]))
