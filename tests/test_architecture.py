"""docs/files.md names every file of the core, with what its own docstring says of it; and no import is circular.

`pytest tests/test_architecture.py --renew` writes it anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "files.md"
CORE = ROOT / "core" / "delegraph"


def first_sentence(file: Path) -> str:
    """The docstring up to its first full stop at a line's or sentence's end, on one line."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def rooms(folder: Path) -> Iterator[Path]:
    """`folder` and those in it, in the order of their names."""
    yield folder
    for inner in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists()):
        yield from rooms(inner)


def every_file() -> str:
    """One list for each folder: the folder's docstring, then its files."""
    lines = [
        "# Every file of the core\n",
        "Written by `pytest tests/test_architecture.py --renew` from the files' own docstrings;"
        " [the architecture](../ARCHITECTURE.md) says how they go together.\n",
    ]
    for room in rooms(CORE):
        lines.append(f"**`{room.relative_to(ROOT)}/`**: {first_sentence(room / '__init__.py')}\n")
        files = sorted(file for file in room.glob("*.py") if file.name not in ("__init__.py", "__main__.py"))
        lines += [f"- `{file.name}`: {first_sentence(file)}" for file in files]
        lines += [""] if files else []
    return "\n".join(lines).rstrip() + "\n"


def test_the_page_names_every_file(request: pytest.FixtureRequest) -> None:
    page = every_file()
    if request.config.getoption("--renew"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "a file is new, gone or says something else: run with --renew"


def test_every_file_says_what_it_is() -> None:
    written = [file for file in CORE.rglob("*.py") if file.read_text(encoding="utf-8").strip()]
    silent = [file for file in written if not first_sentence(file)]
    assert silent == []


def module_name(file: Path) -> str:
    """`delegraph.aot.lower`; of a room's `__init__.py`, the room's name."""
    return ".".join(file.relative_to(CORE.parent).with_suffix("").parts).removesuffix(".__init__")


def imported_names(tree: ast.Module) -> Iterator[str]:
    """The modules, or names in modules, that a file imports; not within functions, but for type checkers as well."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "the core imports by full names"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            nodes += ast.iter_child_nodes(node)


def test_no_import_is_circular() -> None:
    """A module is read without those that use it, and so are its types."""
    files = {module_name(file): file for file in CORE.rglob("*.py")}
    graph = {
        module: {
            name if name in files else name.rpartition(".")[0]
            for name in imported_names(ast.parse(file.read_text("utf-8")))
        }
        & files.keys()
        for module, file in files.items()
    }
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
