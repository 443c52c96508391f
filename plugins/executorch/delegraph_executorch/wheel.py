"""ExecuTorch's wheel, where it is installed -> imported, before operators are defined here that it defines too.

torch refuses a second definition of an operator: the wheel could not be imported after ours.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib import import_module

__all__ = ["let_wheel_define_operators"]


def let_wheel_define_operators() -> None:
    """Import ExecuTorch if it is installed. Call it before looking whether an operator of its is there.

    Its warnings about itself are not shown: where warnings are errors they would end the import half-way.
    """
    with suppress(Exception), warnings.catch_warnings():  # not installed, or broken: what uses the wheel says so
        warnings.simplefilter("ignore")
        import_module("executorch.exir")
