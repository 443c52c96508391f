"""Offer -> the facts in its source: the plug-in API that it needs, its hooks. Nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from delegraph.lazy_dataclass import dataclass, field
from delegraph.plugins.discovery import Offer
from delegraph.plugins.hookspecs import Form, group_named
from delegraph.plugins.inventory import module_spec
from delegraph.plugins.loader import reference
from delegraph.plugins.versions import ApiVersion

__all__ = ["Written", "written"]


@dataclass(frozen=True, slots=True)
class Written:
    """The facts in a plug-in's source. `api` is (1, 0), as for the loader, where it names none; `hooks` are those of
    the class or function that the entry point names, as far as its module has it, with their parameters' names."""

    api: ApiVersion = (1, 0)
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def written(offer: Offer) -> Written:
    """The facts in the module behind `offer`; none where it cannot be read."""
    module, attribute = reference(offer.value) or ("", "")
    try:
        spec = module_spec(module) if module else None
        tree = ast.parse(Path(spec.origin).read_bytes()) if spec and spec.origin else ast.Module([], [])
    except (KeyError, OSError, SyntaxError, ValueError):  # `delegraph plugins doctor` tells its fault
        return Written()
    named = [body.body for body in tree.body if isinstance(body, ast.ClassDef) and body.name == attribute]
    # Both the class and its module may name an API, and both have to be met.
    api = max((api for body in [*named, tree.body] for api in _apis(body)), default=(1, 0))
    if group_named(offer.group).form in (Form.FACTORY, Form.FUNCTION):
        called = [_parameters(function) for function in _functions(tree.body) if function.name == attribute]
        return Written(api, {"__call__": called[-1]} if called else {})
    return Written(api, {function.name: _parameters(function) for body in named for function in _functions(body)})


def _apis(body: Iterable[ast.stmt]) -> Iterator[ApiVersion]:
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="delegraph_api")], value=ast.Tuple(elts=parts))
                | ast.AnnAssign(target=ast.Name(id="delegraph_api"), value=ast.Tuple(elts=parts))
            ):
                match parts:
                    case [ast.Constant(value=int(major)), ast.Constant(value=int(minor))]:
                        yield major, minor


def _functions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    return (statement for statement in body if isinstance(statement, ast.FunctionDef))


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    taken = function.args
    return tuple(each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs))
