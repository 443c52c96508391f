"""ExecuTorch's `executorch.examples`: its own modules, from its wheel, under our name."""

from __future__ import annotations

from delegraph_executorch.of_the_wheel import let_modules_stand_for

__all__: list[str] = []

let_modules_stand_for(__name__)
