"""A factory and options -> its product; an option that it does not have, or of another type, is refused on
its behalf.

A factory's signature says which options it has: with keyword parameters they are its options, of the types that
these are annotated with, and one that takes a mapping has those that it looks at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from delegraph.errors import InvalidArgument, UnknownOption
from delegraph.interfaces.options import Options
from delegraph.plugins.discovery import did_you_mean

__all__ = ["make", "takes_keywords", "unknown_options_text"]

_T = TypeVar("_T")


def make(factory: Callable[..., _T], options: Mapping[str, object], owner: str) -> _T:
    """The product of `factory` with `options`. Raises `UnknownOption` and `InvalidArgument` that name the `owner`, and
    whatever the factory raises."""
    if takes_keywords(factory):
        known = inspect.signature(factory).parameters
        takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
        unknown = [] if takes_any else [name for name in options if name not in known]
        if unknown:
            raise UnknownOption(unknown_options_text(owner, unknown, known))
        _check_types(factory, options, owner)
        return factory(**options)
    recorded = Options(options)
    product = factory(recorded)
    if recorded.unread:
        raise UnknownOption(unknown_options_text(owner, recorded.unread, recorded.asked))
    return product


def takes_keywords(factory: Callable[..., object]) -> bool:
    """Whether the factory's options are keyword parameters: it has no others."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(factory).parameters.values()]
    except ValueError:  # a builtin without a signature
        return False
    return all(kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD) for kind in kinds)


_KINDS: Final[Mapping[object, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "None",
}
"""The types that options are checked for. Options of other annotations are the factory's to check."""


def _check_types(factory: Callable[..., object], options: Mapping[str, object], owner: str) -> None:
    """Any text would count as true where a factory asks for a bool: `{exact=no}` would turn it on."""
    try:
        hints = get_type_hints(factory)
    except (NameError, TypeError):  # names that are imported for a type checker alone
        return
    for name, value in options.items():
        hint = hints.get(name, Any)
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if all(kind in _KINDS for kind in kinds) and not any(_is_of(kind, value) for kind in kinds):
            said = " or ".join(_KINDS[kind] for kind in kinds)
            raise InvalidArgument(f"{owner}: {name} is {value!r}; it is {said}")


def _is_of(kind: type, value: object) -> bool:
    """A bool is no number here; a whole number is one."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def unknown_options_text(owner: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """Whose options the `unknown` ones are not, and which `known` ones there are."""
    names, known = list(unknown), list(known)
    has = f"it has {', '.join(known)}" if known else "it has none"
    hints = "".join(did_you_mean(name, known) for name in names)
    return f"{owner} has no option {', '.join(map(repr, names))}; {has}{hints}"
