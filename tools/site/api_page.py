"""Public packages -> docs/api.md: every public name with the first sentence of its docstring.

`pytest tests/test_public_names.py --renew` writes the page anew; the diff then shows which names came and went.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["PACKAGES", "PAGE", "PUBLIC", "about", "names_of", "origin", "page", "summary"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "api.md"

PACKAGES: Final = (
    "delegraph",
    "delegraph.aot",
    "delegraph.aot.authoring",
    "delegraph.runtime",
    "delegraph.interfaces",
    "delegraph.plugins",
    "delegraph.program",
    "delegraph.devtools",
    "delegraph.remote",
)
"""Importing one of these costs nothing: each name is imported when it is first used."""

PUBLIC: Final = (
    *PACKAGES,
    "delegraph.program.schema",
    "delegraph.program.flat_tensor",
    "delegraph.program.etdump",
    "delegraph.errors",
    "delegraph.lazy_dataclass",
    "delegraph.runtime.numpy_kernels.prepared",
    "delegraph.runtime.numpy_kernels.promotion",
    "delegraph.runtime.numpy_kernels.shapes",
    "delegraph.runtime.numpy_kernels.evaluate",
    "delegraph_partitioners",
    "delegraph_machines.descriptions",
    "delegraph_machines.energy",
    "delegraph_machines.fixed_point",
    "delegraph_machines.hazards",
    "delegraph_machines.memories",
    "delegraph_machines.roofline",
    "delegraph_machines.scratch",
    "delegraph_onnx.target",
    "delegraph_onnx.converters",
    "delegraph_onnx.graph_builder",
    "delegraph_onnx.convert",
    "delegraph_onnx.indexed",
)
"""In the order of the page."""

_HEAD: Final = """# Public names

What users and plug-ins import. Everything else may change without notice: `make floors` and
`tests/test_public_names.py` hold this repository's own plug-ins, examples and documents to these names. Generated from
the docstrings by `pytest tests/test_public_names.py --renew`.
"""


def page() -> str:
    """The text of `docs/api.md`."""
    return "\n".join([_HEAD, *map(_section, PUBLIC)])


def names_of(module: str) -> list[str]:
    """The public names of `module`, sorted."""
    bound = [s for s, _ in _statements(module) if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "__all__"]
    names: list[str] = ast.literal_eval(bound[0].value)
    return sorted(names, key=lambda name: (name.lower(), name))


def about(module: str) -> str:
    """The first paragraph of what `module` says of itself."""
    return _first_paragraph(ast.get_docstring(_tree(module)) or "")


@cache
def origin(module: str, name: str) -> tuple[str, str]:
    """Where what `module` calls `name` is defined, and its name there; of another project, as it is imported."""
    for statement, _ in _statements(module) if _is_ours(module) else []:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                if name == (alias.asname or alias.name):
                    return origin(statement.module, alias.name)
    return module, name


def summary(module: str, name: str) -> str:
    """The first sentence of what `name` says of itself where it is defined; "" for nothing.

    Of another project's name: where it is from.
    """
    home, called = origin(module, name)
    if not _is_ours(home):
        return f"`{home}.{called}`."
    for statement, following in _statements(home):
        match statement:
            case ast.ClassDef() | ast.FunctionDef() if statement.name == called and not _is_overload(statement):
                return _first_sentence(ast.get_docstring(statement) or "")
            case ast.Assign(targets=[ast.Name(id=bound)]) | ast.AnnAssign(target=ast.Name(id=bound)) if bound == called:
                return _first_sentence(_text_of(following))
    raise LookupError(f"{home} neither defines nor imports {called}")


def _is_overload(statement: ast.ClassDef | ast.FunctionDef) -> bool:
    return "overload" in map(ast.unparse, statement.decorator_list)


def _section(module: str) -> str:
    rows = [f"| `{name}` | {summary(module, name).replace('|', chr(92) + '|')} |" for name in names_of(module)]
    return "\n".join([f"## {module}\n", f"{about(module)}\n", "| name | what it is |", "| --- | --- |", *rows, ""])


def _is_ours(module: str) -> bool:
    return module.startswith("delegraph")


@cache
def _statements(module: str) -> list[tuple[ast.stmt, ast.stmt | None]]:
    """The statements of a module, those for type checkers among them, each with the one after it."""
    body: list[ast.stmt] = []
    for statement in _tree(module).body:
        body += statement.body if isinstance(statement, ast.If) else [statement]
    return list(zip(body, [*body[1:], None], strict=True))


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text("utf-8"))


def _text_of(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _first_paragraph(docstring: str) -> str:
    return " ".join(docstring.partition("\n\n")[0].split())


def _first_sentence(docstring: str) -> str:
    return re.split(r"(?<=[.]) ", _first_paragraph(docstring), maxsplit=1)[0]
