"""A process in which torch is not: whoever asks for it gets an ImportError, and is remembered."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

__all__ = ["asked_for_torch", "make_torch_unimportable"]

_asked: list[str] = []


class _NoTorch:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] == "torch":
            _asked.append(_asking_line())
            raise ModuleNotFoundError("the kit runs this half where torch is not installed", name=name)
        return None


def make_torch_unimportable() -> None:
    """From now on; torch must not have been imported."""
    assert "torch" not in sys.modules
    sys.meta_path.insert(0, _NoTorch)


def asked_for_torch() -> list[str]:
    """`file:line` of each statement that tried to import it, whether it minded the error or not."""
    return list(_asked)


def _asking_line() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
