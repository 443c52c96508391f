"""`module:function` and a schema -> the mistake in the function as a kernel of that schema, if there is any."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

import torch

from delegraph.errors import cause_of

__all__ = ["function_violation"]


def function_violation(kernel_name: str, schema: torch.FunctionSchema) -> str | None:
    """Import the function; the reason why it cannot be called with a context and the schema's arguments in order."""
    module_name, colon, name = kernel_name.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), name]):
        return f"kernel_name {kernel_name} is no `module:function`"
    try:
        module = import_module(module_name)
    except Exception as cause:
        return f"importing {module_name} raised {cause_of(cause)}"
    function = getattr(module, name, None)
    if function is None:
        close = get_close_matches(name, vars(module), n=1)
        return f"{module_name} has no function {name}" + (f"; did you mean {close[0]}?" if close else "")
    if not callable(function):
        return f"{kernel_name} is no function but {type(function).__name__}"
    return _signature_violation(kernel_name, function, schema)


def _signature_violation(kernel_name: str, function: Callable[..., object], schema: torch.FunctionSchema) -> str | None:
    names = ["context", *(argument.name for argument in schema.arguments)]
    convention = f"it is called as ({', '.join(names)})"
    try:
        signature = inspect.signature(function)
    except ValueError:
        return f"{kernel_name} does not tell its parameters: write a function around it; {convention}"
    written = f"{kernel_name} has the parameters {signature}"
    try:
        bound = signature.bind(*names)
    except TypeError:
        return f"{written}; {convention}"
    for parameter, name in bound.arguments.items():
        if parameter in names and isinstance(name, str) and name != parameter:
            return f"{written}, {parameter} where {name} comes; {convention}"
    return None
