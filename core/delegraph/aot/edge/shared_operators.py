"""Schemas and kernels -> operators in torch under names that ExecuTorch has too: both packages live in one process.

torch admits one definition of an operator in a process. Where ExecuTorch has been imported before, its definitions are
used; where it is imported later, ours make way for them just before. The kernels stay, so operators in graphs stay
callable.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder

import torch

__all__ = ["register_operators"]


def register_operators(
    schemas: Sequence[str], kernels: Mapping[str, Callable[..., object]], namespace: str, their_definitions: str
) -> tuple[torch.library.Library, ...]:
    """Define operators of `namespace` unless they are there. `their_definitions` is ExecuTorch's module that does.

    Keep the returned libraries: torch unregisters operators and kernels when the library objects go.
    """
    if hasattr(getattr(torch.ops, namespace), next(iter(kernels))):
        return ()
    definitions, implementations = (torch.library.Library(namespace, "FRAGMENT") for _ in range(2))
    for schema in schemas:
        definitions.define(schema)
    for name, kernel in kernels.items():
        implementations.impl(name, kernel, "CompositeExplicitAutograd")
    sys.meta_path.insert(0, _MakeWay(definitions, their_definitions))
    return definitions, implementations


class _MakeWay(MetaPathFinder):
    """Finds no module; takes our definitions back when ExecuTorch's are about to be made."""

    def __init__(self, definitions: torch.library.Library, their_definitions: str) -> None:
        self._definitions = definitions
        self._their_definitions = their_definitions

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Called for every import of a module that is not loaded yet."""
        if fullname == self._their_definitions:
            sys.meta_path.remove(self)
            assert self._definitions.m is not None
            self._definitions.m.reset()
