"""ExecuTorch's `executorch.exir.verification.interpreter`, which runs a program on its C++ bindings: replaced here."""

from __future__ import annotations

from typing import Any, NoReturn

from delegraph.errors import NotSupported

__all__ = ["Interpreter"]


class Interpreter:
    """Raises `NotSupported`: a program is run by the runtime, which needs no bindings."""

    def __init__(self, program: Any) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise NotSupported(
        "there is no interpreter of programs in Python beside the runtime: run delegraph.load(bytes)(*inputs), and read"
        " a program's values and operators from delegraph.program.deserialize_program(bytes)"
    )
