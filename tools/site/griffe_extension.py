"""mkdocstrings asks it of every function that it reads: the docstring with the parameters as a list."""

from __future__ import annotations

from typing import Any

import griffe
from tools.site.parameters import listed

__all__ = ["ParametersAsList"]


class ParametersAsList(griffe.Extension):
    """Rewrites docstrings as they are read."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called by griffe once for each function."""
        if func.docstring:
            func.docstring.value = listed(func.docstring.value, [parameter.name for parameter in func.parameters])
