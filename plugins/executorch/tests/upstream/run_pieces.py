"""Setups and pieces of a page, on stdin -> which of the pieces ran, in a file: the page's own Python executes this."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

program = json.loads(sys.stdin.read())
sys.path.append(program["fallback"])  # ExecuTorch's wheel, and what its environment has besides
page = sys.modules["__main__"] = ModuleType("__main__")  # where a strict export looks up what a model's code names
namespace = page.__dict__


def run(source: str, name: str) -> None:
    file = Path(f"{name}.py").resolve()
    file.write_text(source, encoding="utf-8")  # so that errors and traces show its lines
    exec(compile(source, str(file), "exec"), namespace)


for number, setup in enumerate(program["setups"], 1):
    run(setup, f"setup_{number}")

results = {}
for number, (name, source) in enumerate(program["pieces"], 1):
    try:
        run(source, f"piece_{number}")
        results[name] = ""
    except Exception as error:
        results[name] = f"{type(error).__name__}: {error}"
    Path(program["results"]).write_text(json.dumps(results), encoding="utf-8")
