"""NamedTuples and dataclasses: which classes they are, and the names of their fields.

A file names such a class and never chooses it: whoever loads a program hands over the classes that its results become.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from delegraph.lazy_dataclass import is_dataclass

__all__ = ["fields_of", "is_named_class"]


def is_named_class(kind: object) -> TypeGuard[type[Any]]:
    """Whether it is the class of a NamedTuple or a dataclass; torch's own named tuples are neither."""
    return isinstance(kind, type) and (is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")))


def fields_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields that it is made of, in order."""
    if not is_dataclass(kind):
        return tuple(kind._fields)
    from dataclasses import fields  # the user's class has been made by it

    return tuple(field.name for field in fields(kind) if field.init)
