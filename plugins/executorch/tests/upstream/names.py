"""ExecuTorch's installed wheel -> names.csv: which of its public names its own users import, and in how many files.

    python -m plugins.executorch.tests.upstream.names       # from the repository's folder: writes names.csv anew

Its users are the files of `backends`, `examples`, `extension`, `devtools`, `export` … and all tests: what code outside
ExecuTorch imports, they import. Not counted are

- a package's own code that imports its own modules (`exir` importing `exir`), unless it is a test;
- names with a leading underscore in modules that have one too: insides of insides;
- what tests share (`exir.tests.*`, `*.test.*`): the ported tests bring it along;
- modules that flatc generates (`exir._serialize.generated`): ours are `delegraph.program.schema`.
"""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from plugins.executorch.tests.upstream.suite import executorch_package

__all__ = ["TABLE", "Name", "defined_names", "read_names", "used_names"]

TABLE: Final = Path(__file__).with_name("names.csv")

Name = tuple[str, str]
"""A module of ExecuTorch's and a name in it; the name may be a module too."""

PUBLIC: Final = re.compile(
    r"executorch\.(exir|runtime|devtools|export|extension\.pybindings|extension\.export_util)(\.|$)"
)
OF_TESTS: Final = re.compile(r"\.tests?(\.|$)|\.test_|\.testing")
GENERATED: Final = re.compile(r"\.(executorch_flatbuffer|generated)(\.|$)")


def used_names(package: Path) -> Counter[Name]:
    """How many files of `package` use each public name."""
    uses: Counter[Name] = Counter()
    for path in sorted(package.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError:  # a template
            continue
        file = path.relative_to(package)
        uses.update(name for name in set(_names_in(tree)) if _counts(name, file))
    return uses


def _counts(name: Name, file: Path) -> bool:
    module, attribute = name
    if PUBLIC.match(module) is None or OF_TESTS.search(f"{module}.{attribute}") or GENERATED.search(module):
        return False
    if attribute.startswith("_") and any(part.startswith("_") for part in module.split(".")):
        return False
    own = module.split(".")[1] == file.parts[0]
    return not own or OF_TESTS.search("." + ".".join(file.with_suffix("").parts)) is not None


def _names_in(tree: ast.AST) -> Iterator[Name]:
    """What a file imports from ExecuTorch; of a module that it imports whole, the attributes that it reads."""
    modules: dict[str, str] = {}  # what a name in the file stands for
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                yield node.module, alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (of := modules.get(ast.unparse(node.value))) is not None:
            yield of, node.attr


def defined_names(package: Path) -> dict[Name, int]:
    """Those of `used_names` that a module has, most used first; not the attributes of an object of a module's name."""
    rows = {name: files for name, files in used_names(package).items() if _has(package, *name)}
    return dict(sorted(rows.items(), key=lambda row: (-row[1], row[0])))


def _has(package: Path, module: str, attribute: str) -> bool:
    path = package.joinpath(*module.split(".")[1:])
    if (path / attribute).is_dir() or (path / f"{attribute}.py").exists() or any(path.glob(f"{attribute}.*.so")):
        return True
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return source.exists() and not {attribute, "*"}.isdisjoint(_names_of(source))


@cache
def _names_of(source: Path) -> frozenset[str]:
    """What a module's own statements bind; "*" if it imports everything of another."""
    bound: set[str] = set()
    statements = list(ast.parse(source.read_text(encoding="utf-8")).body)
    while statements:
        statement = statements.pop()
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name.split(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            bound.add(statement.name)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            statements += [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
        else:
            bound.update(node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
    return frozenset(bound)


def write_names(rows: Mapping[Name, int]) -> None:
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("module", "name", "files"))
        writer.writerows((*name, files) for name, files in rows.items())


def read_names() -> dict[Name, int]:
    """The table: name -> files that use it."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {(row["module"], row["name"]): int(row["files"]) for row in csv.DictReader(file)}


if __name__ == "__main__":
    write_names(defined_names(executorch_package()))
