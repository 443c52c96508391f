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
for setup in program["setups"]:
    exec(compile(Path(setup).read_text(encoding="utf-8"), setup, "exec"), namespace)

results = {}
for number, (name, source) in enumerate(program["pieces"], 1):
    file = Path(f"piece_{number}.py").resolve()
    file.write_text(source, encoding="utf-8")  # so that errors and traces show its lines
    try:
        exec(compile(source, str(file), "exec"), namespace)
        results[name] = ""
    except Exception as error:
        results[name] = f"{type(error).__name__}: {error}"
    Path(program["results"]).write_text(json.dumps(results), encoding="utf-8")
