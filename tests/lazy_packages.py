"""A package whose names are imported when they are first used: its imports for type checkers -> its other two lists.

An author writes the imports. Type checkers want `__all__` as well, spelt out; at run time `lazy_names` has to know
which module has which name, without reading sources, which an application may not have.
"""

from __future__ import annotations

import ast
import subprocess
import sys

__all__ = ["renewed"]


def renewed(source: str) -> str:
    """The text of a package's `__init__.py` with `__all__` and the table of `lazy_names` as its imports have them."""
    modules = _imported(ast.parse(source))
    names = sorted((name for names in modules.values() for name in names), key=_order)
    head, _, rest = source.partition("\n__all__ = [")
    _, _, tail = rest.partition("\n__getattr__, __dir__ = lazy_names(")
    (call,) = ast.parse(f"lazy_names({tail}").body
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    call.value.args[1] = ast.parse(repr(modules), mode="eval").body
    return _formatted(f"{head}\n__all__ = {names}\n\n__getattr__, __dir__ = {ast.unparse(call)}\n")


def _imported(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The names that type checkers see imported, by module."""
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {str(node.module): tuple(alias.name for alias in node.names) for node in imports}


def _order(name: str) -> tuple[int, str]:
    """Constants, classes, functions, as in imports."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--line-length", "120", "-"]
    return subprocess.run(command, input=source, capture_output=True, encoding="utf-8", check=True).stdout
