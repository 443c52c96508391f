"""A factory and options -> what it makes of them; an option that it does not have is refused on its behalf.

A factory says what options it has by how it is written: with keyword parameters they are its options, and one that
takes a mapping has those that it looks at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any

from delegraph.errors import UnknownOption
from delegraph.interfaces.options import Options
from delegraph.plugins.discovery import did_you_mean

__all__ = ["make", "takes_keywords", "unknown_options_text"]


def make(factory: Callable[..., Any], options: Mapping[str, Any], owner: str) -> Any:
    """What `factory` makes of `options`. Raises `UnknownOption` naming the `owner`, or what the factory raises."""
    if takes_keywords(factory):
        known = inspect.signature(factory).parameters
        takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
        unknown = [] if takes_any else [name for name in options if name not in known]
        if unknown:
            raise UnknownOption(unknown_options_text(owner, unknown, known))
        return factory(**options)
    given = Options(options)
    made = factory(given)
    if given.unread:
        raise UnknownOption(unknown_options_text(owner, given.unread, given.asked))
    return made


def takes_keywords(factory: Callable[..., Any]) -> bool:
    """Whether the factory's options are keyword parameters: it has no others."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(factory).parameters.values()]
    except ValueError:  # a builtin without a signature
        return False
    return all(kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD) for kind in kinds)


def unknown_options_text(owner: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """Whose options the `unknown` ones are not, and which `known` ones there are."""
    names, known = list(unknown), list(known)
    has = f"it has {', '.join(known)}" if known else "it has none"
    hints = "".join(did_you_mean(name, known) for name in names)
    return f"{owner} has no option {', '.join(map(repr, names))}; {has}{hints}"
