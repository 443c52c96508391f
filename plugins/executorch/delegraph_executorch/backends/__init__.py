"""ExecuTorch's `executorch.backends`: its own modules, from its wheel, under our name.

Its partitioners are used as they are: what lowers here hands them to the bridge (`delegraph_executorch.bridge`).
"""

from __future__ import annotations

from delegraph_executorch.of_the_wheel import let_modules_stand_for

__all__: list[str] = []

let_modules_stand_for(__name__)
