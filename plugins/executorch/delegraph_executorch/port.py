"""Code written for ExecuTorch -> the same on Delegraph: modules of `executorch` are those of `delegraph_executorch`.

python -m delegraph_executorch.port FILE_OR_FOLDER…          # rewrites the files, and says which, and what is left
python -m delegraph_executorch.port --check FILE_OR_FOLDER…  # only says that; exit code 1 if something would change

Python files, stubs, notebooks and shell scripts are rewritten: every form of import, what is reached through one, and
names in strings (`patch("executorch.exir.…")`) and in `python -m executorch.…`. Listed with its line is what only a
person can decide: the word "executorch" alone in a string, names that are put together at run time, dependencies. Below
a folder that is named, those with a dot before their names and installed packages are left alone.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Leftover", "leftovers", "main", "ported"]

OLD, NEW = "executorch", "delegraph_executorch"
PACKAGES: Final = (
    *("backends", "codegen", "data", "devtools", "examples", "exir", "export", "extension", "kernels", "runtime"),
    *("schema", "util", "version"),
)
DOTTED: Final = re.compile(rf"(?<![\w./-]){OLD}(?=\.(?:{'|'.join(PACKAGES)})\b)")
"""A module by its dotted name: `executorch_call_delegate`, paths and addresses are none."""

DEPENDS: Final = re.compile(rf"^[^#]*?(?<![\w./-]){OLD}(?![\w./-])")
DEPENDENCIES: Final = ("pyproject.toml", "setup.cfg", "requirements*.txt", "environment*.yml", "environment*.yaml")
PYTHON: Final = (".py", ".pyi")
NOT_THEIRS: Final = frozenset({"site-packages", "node_modules", "__pycache__"})
REQUIREMENT: Final = re.compile(rf"{OLD}\s*(?:\[[\w,-]*\])?\s*(?:[<>=!~;@].*)")
"""A version of the distribution as pip is told of it."""

IN_A_STRING: Final = f"if it is to find or patch modules, write {NEW}; if it names the distribution, leave it"
AT_RUN_TIME: Final = f"a name that is put together at run time: let it begin with {NEW}"
UNREAD: Final = "it is no Python that can be parsed here: look at its imports"
NO_TEXT: Final = "it is no text in UTF-8: look at it yourself"
DEPENDENCY: Final = "the ported code needs delegraph-executorch, and executorch itself for its own backends alone"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A piece of line `line` that was left, and what to do."""

    line: int
    text: str
    advice: str


# ---- Python ----------------------------------------------------------------------------------------


def ported(source: str) -> str:
    """Python source with `delegraph_executorch` wherever it names a module of ExecuTorch; again, it is as it was."""
    source = DOTTED.sub(NEW, source)
    tree = _parsed(source)
    if tree is None:
        return re.sub(rf"^(\s*(?:from|import)\s+){OLD}(?=\s)", rf"\1{NEW}", source, flags=re.MULTILINE)
    lines = _lines(source)
    for line, column in sorted(set(_places(tree, lines)), reverse=True):
        text = lines[line - 1].encode()  # columns are in bytes
        lines[line - 1] = (text[:column] + NEW.encode() + text[column + len(OLD) :]).decode()
    return "".join(lines)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _lines(source: str) -> list[str]:
    """The lines as Python's parser counts them, with their ends: a form feed ends none."""
    return io.StringIO(source, newline="").readlines()


def _places(tree: ast.Module, lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Lines and columns, in bytes, at which the word is ExecuTorch's package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.lineno, a.col_offset) for a in node.names if _package(a.name) == OLD)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and _package(node.module or "") == OLD:
            line, start = node.lineno, node.col_offset
            while (column := lines[line - 1].encode().find(OLD.encode(), start)) < 0:  # behind a backslash
                line, start = line + 1, 0
            yield line, column
    yield from ((name.lineno, name.col_offset) for name in _names(tree, is_package=False))


def _package(module: str) -> str:
    return module.partition(".")[0]


def _names(scope: ast.AST, is_package: bool) -> Iterator[ast.Name]:
    """Where the bare name stands for the package that was imported under it; `is_package`: it does around `scope`."""
    own, inner = _of_scope(scope)
    imports = [alias for node in own if isinstance(node, ast.Import) for alias in node.names]
    names = [node for node in own if isinstance(node, ast.Name) and node.id == OLD]
    if any(_package(alias.name) in (OLD, NEW) and alias.asname is None for alias in imports):
        is_package = True
    elif any(isinstance(name.ctx, ast.Store) for name in names) or any(
        isinstance(node, ast.arg) and node.arg == OLD for node in own
    ):
        is_package = False
    yield from names if is_package else ()
    for each in inner:
        yield from _names(each, is_package)


def _of_scope(scope: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """The nodes of a scope, and those that have scopes of their own in it."""
    own: list[ast.AST] = []
    inner: list[ast.AST] = []
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            inner.append(node)
        else:
            below, deeper = _of_scope(node)
            own += [node, *below]
            inner += deeper
    return own, inner


def leftovers(source: str) -> Iterator[Leftover]:
    """The pieces of ported Python source that a person has to look at."""
    tree = _parsed(source)
    if tree is None and OLD in source:
        yield Leftover(1, source.splitlines()[0], UNREAD)
    lines = _lines(source)
    for node in ast.walk(tree) if tree is not None else ():
        advice = None
        match node:
            case ast.JoinedStr(values=[ast.Constant(value=str(beginning)), *_]) if beginning.startswith(f"{OLD}."):
                advice = AT_RUN_TIME
            case ast.Constant(value=str(text)) if text == OLD:
                advice = IN_A_STRING
            case ast.Constant(value=str(text)) if REQUIREMENT.fullmatch(text):
                advice = DEPENDENCY
            case ast.Constant(value=str(text)) if re.fullmatch(rf"{OLD}\.\w[\w.]*", text):
                advice = AT_RUN_TIME
        if advice is not None and isinstance(node, ast.expr):
            yield Leftover(node.lineno, lines[node.lineno - 1].strip(), advice)


# ---- files -----------------------------------------------------------------------------------------


def _port_file(path: Path) -> tuple[str, str, list[Leftover]]:
    """The text of a file, the same ported, and what is left in it."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        return "", "", [Leftover(1, path.name, NO_TEXT)]
    if path.suffix == ".ipynb":
        return text, *_port_notebook(text)
    if path.suffix in PYTHON:
        new = ported(text)
        return text, new, sorted(set(leftovers(new)), key=lambda left: left.line)
    if path.suffix == ".sh":
        return text, DOTTED.sub(NEW, text), _dependencies(text)
    return text, text, _dependencies(text)


def _dependencies(text: str) -> list[Leftover]:
    """The lines that ask for ExecuTorch's distribution."""
    named = (number for number, line in enumerate(text.splitlines(), 1) if DEPENDS.match(line))
    return [Leftover(number, text.splitlines()[number - 1].strip(), DEPENDENCY) for number in named]


def _port_notebook(text: str) -> tuple[str, list[Leftover]]:
    """A notebook whose cells of code are ported; lines are those of all its code, one cell after the other."""
    notebook = json.loads(text)
    left: list[Leftover] = []
    line = 0
    for cell in notebook.get("cells", ()):
        if cell.get("cell_type") == "code":
            source = "".join(cell["source"])
            new = ported(source)
            left += [
                Leftover(line + each.line, each.text, each.advice) for each in leftovers(new) if each.advice != UNREAD
            ]
            installs = "\n".join(each if re.match(r"\s*[!%]", each) else "" for each in source.splitlines())
            left += [Leftover(line + each.line, each.text, each.advice) for each in _dependencies(installs)]
            line += len(source.splitlines())
            if new != source:
                cell["source"] = new if isinstance(cell["source"], str) else new.splitlines(keepends=True)
    new_text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    return (new_text if json.loads(text) != notebook else text), left


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            patterns = (*(f"*{suffix}" for suffix in PYTHON), "*.ipynb", "*.sh", *DEPENDENCIES)
            files = {file for pattern in patterns for file in path.rglob(pattern)}
            yield from sorted(file for file in files if not _is_left_alone(file.relative_to(path)))
        else:
            yield path


def _is_left_alone(path: Path) -> bool:
    return any(part in NOT_THEIRS or part.startswith(".") for part in path.parts[:-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m delegraph_executorch.port", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_FOLDER")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if something would change")
    options = parser.parse_args(arguments)
    changed, left = 0, []
    for path in _files(options.paths):
        text, new, of_file = _port_file(path)
        left += [f"{path}:{each.line}: {each.text}\n    {each.advice}" for each in of_file]
        if new != text:
            changed += 1
            print(path)
            if not options.check:
                path.write_bytes(new.encode())  # with its ends of lines
    if left:
        print("\nleft as it is:", *left, sep="\n")
    return int(options.check and changed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
