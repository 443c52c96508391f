"""The names that users of ExecuTorch import are under `delegraph_executorch`: 92 in 100 of all uses without its wheel,
all that are listed as such with it (`bridge/test_own_names.py`)."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest
from plugins.executorch.tests.upstream.name_table import DIFFERENCES, PAGE, with_section
from plugins.executorch.tests.upstream.names import Name, defined_names, read_names
from plugins.executorch.tests.upstream.results import read_reasons

from delegraph.errors import DelegraphError

LISTED = Path(__file__).parent / "upstream" / "cannot_pass" / "names.toml"


def is_there(name: Name) -> bool:
    """Whether `from delegraph_executorch.… import name` works: an attribute, or a module."""
    module = name[0].replace("executorch", "delegraph_executorch", 1)
    try:
        if hasattr(importlib.import_module(module), name[1]):
            return True
        importlib.import_module(f"{module}.{name[1]}")
    except (ImportError, DelegraphError):
        return False
    return True


@pytest.fixture(scope="module")
def missing() -> dict[str, int]:
    """Names that are not there, as "module:name", and how many files use each."""
    return {":".join(name): files for name, files in read_names().items() if not is_there(name)}


def test_ninety_two_of_a_hundred_uses_find_their_name(missing: dict[str, int]) -> None:
    uses = sum(read_names().values())
    table = "\n".join(f"{files:4d}  {name}" for name, files in sorted(missing.items(), key=lambda row: -row[1]))
    assert sum(missing.values()) <= 0.08 * uses, f"{sum(missing.values())} of {uses} uses find nothing\n{table}"


def test_what_is_missing_is_listed_with_its_reason(missing: dict[str, int]) -> None:
    """By name, or by module where none of its names is there."""
    listed = read_reasons([LISTED])
    assert {name if name in listed else name.partition(":")[0] for name in missing} == set(listed)


def test_what_differs_is_there(missing: dict[str, int]) -> None:
    listed = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))
    assert {tuple(name.split(":")) for name in listed} <= read_names().keys()
    assert not listed.keys() & missing.keys()
    assert all(remark.startswith(("differs: ", "replaced: ")) for remark in listed.values())


def test_the_documentation_has_every_name() -> None:
    """`python -m plugins.executorch.tests.upstream.name_table` writes the section."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_section(page) == page


@pytest.mark.executorch
def test_the_table_is_executorchs(executorch_package: Path) -> None:
    if not list(executorch_package.parent.glob("executorch-1.4.*.dist-info")):
        pytest.skip("the table is of 1.4: `upstream/cannot_pass/since_1_5.toml` has what differs from it later")
    assert defined_names(executorch_package) == read_names()
