"""names.csv, differences.toml, cannot_pass/names.toml -> "Name by name" in docs/coming-from-executorch.md.

python -m plugins.executorch.tests.upstream.name_table       # from the repository's folder: writes the section anew
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from plugins.executorch.tests.upstream.names import Name, read_names
from plugins.executorch.tests.upstream.results import WHEEL
from plugins.executorch.tests.upstream.suite import REPOSITORY

__all__ = ["DIFFERENCES", "PAGE", "section_of", "with_section"]

PAGE: Final = REPOSITORY / "docs" / "coming-from-executorch.md"
DIFFERENCES: Final = Path(__file__).with_name("differences.toml")
MISSING: Final = Path(__file__).parent / "cannot_pass" / "names.toml"

BEGIN, END = "<!-- name by name: begin (name_table.py writes it) -->\n", "<!-- name by name: end -->\n"

AREAS: Final = {
    "Lowering and its settings": ("executorch.exir", "executorch.exir.program", "executorch.exir.capture"),
    "Operators and dialects": ("executorch.exir.dialects", "executorch.exir.operator"),
    "Passes": ("executorch.exir.pass", "executorch.exir.verification"),
    "Backends and partitioners": ("executorch.exir.backend", "executorch.exir.lowered_backend_module"),
    "Memory": ("executorch.exir.memory", "executorch.exir.tensor"),
    "Programs and files": ("executorch.exir.schema", "executorch.exir._serialize", "executorch.exir.emit"),
    "Graphs and the rest of `exir`": ("executorch.exir.",),
    "Runtime and bindings": ("executorch.runtime", "executorch.extension.pybindings"),
    "Export recipes and utilities": ("executorch.export", "executorch.extension.export_util"),
    "Developer tools": ("executorch.devtools",),
}
"""Area -> prefixes of its modules; the first area that fits has a name."""


def section_of(names: dict[Name, int]) -> str:
    """For each area: the names that are the same by module, then a table of those that are not."""
    missing = {
        name: f"the wheel's: {reason.removeprefix(f'{WHEEL}: ')}" if reason.startswith(WHEEL) else f"not here: {reason}"
        for name, reason in _read(MISSING).items()
    }
    said = {**_read(DIFFERENCES), **missing}
    areas: dict[str, list[Name]] = {area: [] for area in AREAS}
    for name in names:
        areas[_area(name[0])].append(name)
    return "\n".join(_area_section(area, sorted(found), names, said) for area, found in areas.items() if found)


def _read(path: Path) -> dict[str, str]:
    found: dict[str, str] = tomllib.loads(path.read_text(encoding="utf-8"))
    return found


def _area(module: str) -> str:
    exact = next((area for area, prefixes in AREAS.items() if module in prefixes), None)
    return exact or next(
        area
        for area, prefixes in AREAS.items()
        if any(module.startswith(prefix) for prefix in prefixes if prefix != "executorch.exir")
    )


def _area_section(area: str, found: list[Name], uses: dict[Name, int], said: dict[str, str]) -> str:
    same: dict[str, list[str]] = {}
    rows = []
    for module, name in found:
        remark = said.get(f"{module}:{name}", said.get(module))
        if remark is None:
            same.setdefault(module.removeprefix("executorch."), []).append(f"`{name}`")
        else:
            kind, _, text = remark.partition(": ")
            rows.append(
                f"| `{module.removeprefix('executorch.')}` | `{name}` | {uses[module, name]} | {kind} | {text} |"
            )
    lines = [f"### {area}", "", "The same:", ""]
    lines += [f"- `{module}`: {', '.join(names)}" for module, names in same.items()]
    if rows:
        lines += ["", "| module | name | files that use it | | |", "|---|---|---|---|---|", *rows]
    return "\n".join([*lines, ""])


def with_section(page: str) -> str:
    """The page with its section made anew."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + section_of(read_names()) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
