"""SECURITY.md names a test for every format that is read; and nothing is read by what could run code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.distributions import DISTRIBUTIONS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
SECTION = TEXT[TEXT.index("## Every format that is read") : TEXT.index("## What is not promised")]
ROWS = [line.strip("| ").split(" | ") for line in SECTION.splitlines() if line.startswith("| ")]
FORMATS = ROWS[1 : next(at for at, row in enumerate(ROWS) if row[0] == "attack")]
NAMED = sorted({name for row in FORMATS for name in re.findall(r"`([\w/.]+\.py(?:::\w+)?)`", row[-1])})


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_is_named_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert function in tests if function else tests


def test_every_format_has_a_test_or_is_trusted() -> None:
    assert len(FORMATS) > 20
    for row in FORMATS:
        assert "::" in row[-1] or ".py`" in row[-1] or "**trusted**" in " ".join(row), row[0]


UNSAFE = {
    *("eval", "exec", "pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load", "torch.jit.load"),
    *(
        "marshal.load",
        "marshal.loads",
        "shelve.open",
        "yaml.load",
        "yaml.unsafe_load",
        "joblib.load",
        "torch.export.load",
    ),
    *("sympify", "sympy.sympify", "parse_expr", "sympy.parse_expr", "numexpr.evaluate"),
}
ALLOWED = {
    "core/delegraph/lazy_dataclass.py": {"exec"},  # of the names of classes' fields, which stand in this repository
    "core/delegraph/plugins/tools.py": {"exec"},  # of the names of hooks' arguments, which stand in this repository
    "core/delegraph/cli/factory.py": {"torch.export.load"},  # a user's own model, which SECURITY.md calls trusted
    # what this process wrote into a folder of its own, for the process that tries it; and a user's own model
    "core/delegraph/debugging/judge.py": {"torch.export.load"},
    "core/delegraph/debugging/trial.py": {"torch.export.load", "torch.load"},
}


def calls(tree: ast.AST) -> Iterator[str]:
    return (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_nothing_is_read_by_what_could_run_code() -> None:
    """The tests, the tools and the examples aside: they read their own files."""
    found = {
        str(path.relative_to(ROOT)): names
        for distribution in DISTRIBUTIONS
        for path in sorted(distribution.package.rglob("*.py"))
        if (names := {*calls(ast.parse(path.read_text("utf-8")))} & UNSAFE)
    }
    assert found == ALLOWED
