"""ExecuTorch's `executorch.exir.passes.pass_registry`: a name -> passes.

Passes that are to be named in a lowering are plug-ins of the group `delegraph.passes`; this holds those of one process.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from delegraph_executorch.exir.error import ExportError, ExportErrorType
from delegraph_executorch.exir.pass_manager import PassType

__all__ = ["PassRegistry"]


class PassRegistry:
    """Lists of passes by name, for the whole process."""

    registry: ClassVar[dict[str, list[PassType]]] = {}

    @classmethod
    def register(cls, pass_name: str | None = None) -> Callable[[PassType], PassType]:
        """A decorator that registers a pass under `pass_name`, or under its own name in snake case."""

        def registered(one_pass: Any) -> Any:
            cls.register_list(pass_name or re.sub(r"(?<!^)(?=[A-Z])", "_", one_pass.__name__).lower(), [one_pass])
            return one_pass

        return registered

    @classmethod
    def register_list(cls, pass_name: str, pass_list: list[PassType]) -> None:
        """Register several passes under one name; the first to take a name keeps it."""
        if pass_name in cls.registry:
            warnings.warn(f"a pass {pass_name} is registered already; this one is ignored", stacklevel=2)
            return
        cls.registry[pass_name] = pass_list

    @classmethod
    def get(cls, key: str) -> list[PassType]:
        """The passes of a name. Raises `ExportError` for one that nobody registered."""
        if key not in cls.registry:
            raise ExportError(ExportErrorType.MISSING_PROPERTY, f"no pass {key!r} is registered")
        return cls.registry[key]
