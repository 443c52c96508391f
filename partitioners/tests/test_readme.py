"""Every Python example of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.strip().splitlines()[-1][:40])
def test_example_runs(example: str) -> None:
    exec(compile(example, str(README), "exec"), {})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3
