"""The rows of `paths.txt` -> stubs in the wheel: type checkers see the names of a path that is no file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from runpy import run_path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "delegraph_executorch"


def stubs(package: Path) -> Iterator[tuple[Path, str]]:
    """Each stub of `package`, a folder: its place below that, and its text."""
    table = run_path(str(package / "path_table.py"))  # the package itself needs what a build has not
    rows = table["rows"]((package / "paths.txt").read_text("utf-8"))
    parents = {path[:end] for path in rows for end, letter in enumerate(path) if letter == "."}
    for path in sorted(parents | rows.keys()):
        place = Path(*path.split("."))
        is_package = path in parents or (package / place).is_dir()
        if path in rows:
            file = place / "__init__.pyi" if is_package else place.with_suffix(".pyi")
            yield file, stub(table["homes_in"](rows[path]), table["BESIDE"])
        elif not (package / place / "__init__.py").exists():
            yield place / "__init__.pyi", ""


def stub(homes: Iterable[tuple[str, list[tuple[str, str]]]], beside: str) -> str:
    """The text of a stub: the imports that a row says, each under a name that is to be seen.

    Of names whose home is `beside` no type is known: they are the wheel's.
    """
    lines = ["from typing import Any", ""]
    for module, names in homes:
        if module == beside:
            lines += [f"{here}: Any" for _, here in names]
        else:
            lines.append(f"from {module} import {', '.join(f'{there} as {here}' for there, here in names) or '*'}")
    return "\n".join([*lines, ""])


class CustomBuildHook(BuildHookInterface[Any]):
    """The step that hatchling runs before it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the stubs; an editable wheel has none, and needs the package's own folder."""
        folder = Path(mkdtemp())
        for number, (place, text) in enumerate(stubs(Path(self.root, PACKAGE)) if version != "editable" else ()):
            (folder / str(number)).write_text(text, "utf-8")
            build_data["force_include"][str(folder / str(number))] = f"{PACKAGE}/{place.as_posix()}"
