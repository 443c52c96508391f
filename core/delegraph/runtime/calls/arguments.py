"""A caller's (args, kwargs) -> the flat inputs of a method, by its own names for them.

    forward(x, cache=(k, v), *, scale)   exported with x, cache and scale
    names                                "x", "cache[0]", "cache[1]", "scale"
    method(x, scale=s, cache=(k, v))     [x, k, v, s]

Without the names, which ExecuTorch's files do not have, the positional ones are `args[0]`, `args[1][0]` …; without
the structure, `input 0`, `input 1` …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from delegraph.errors import InvalidArgument, printable
from delegraph.runtime.calls.pytree import LEAF, TreeSpec, parse_treespec

__all__ = ["Arguments", "spec_of"]


class Arguments:
    """The structure of a method's arguments: `encoded` is that of ((args), {kwargs}) as the file has it, "" for none.

    `parameters` are the names of the positional ones; () where they are not known.
    """

    def __init__(self, encoded: str, num_inputs: int, parameters: Sequence[str] = ()) -> None:
        spec = spec_of(encoded, num_inputs)
        known = spec is not None and len(spec.children) == 2 and spec.children[1].is_dict
        self._spec = spec if spec is not None and known else _positional(num_inputs)
        self._place = "args[{}]" if known else "input {}"
        self._args, self._kwargs = self._spec.children
        self._parameters = tuple(parameters) if len(parameters) == len(self._args.children) else ()
        self._shown = tuple(map(printable, self._parameters))
        only_leaves = {*self._args.children, *self._kwargs.children} <= {LEAF}
        by_name = self._parameters or (None,) * len(self._args.children)
        self._leaves = (*by_name, *(self._kwargs.keys or ())) if only_leaves else None

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each input."""
        return tuple(self._names())

    def _names(self) -> Iterator[str]:
        for position, child in enumerate(self._args.children):
            yield from child.paths(self._shown[position] if self._shown else self._place.format(position))
        for key, child in zip(self._kwargs.keys or (), self._kwargs.children, strict=True):
            yield from child.paths(printable(str(key)))

    def has(self, name: str) -> bool:
        """Whether the method has an argument of that name."""
        return name in self._parameters or name in (self._kwargs.keys or ())

    def flatten(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Sequence[object]:
        """The inputs in order. Raises `InvalidArgument` for arguments of another structure."""
        count = len(args)
        if self._leaves is not None and count + len(kwargs) == len(self._leaves) and count <= len(self._args.children):
            if not kwargs:
                return args
            with suppress(KeyError):
                return [*args, *[kwargs[name] for name in self._leaves[count:]]]
        try:
            return self._spec.flatten(self._bound(args, kwargs) if kwargs else (args, kwargs))
        except InvalidArgument as error:
            unknown = ", ".join(repr(name) for name in kwargs if self._parameters and not self.has(name))
            if unknown:
                raise InvalidArgument(f"takes {self}, and has no argument {unknown}") from error
            passed = _call_text(TreeSpec.of((args, dict(kwargs))))
            raise InvalidArgument(f"takes {self}, got {passed}: {self._miscounted(args, kwargs) or error}") from error

    def _miscounted(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """The arguments that are too many, or missing, in words; "" if there are none."""
        children = self._args.children
        if len(args) > len(children):
            fits = len(children) == 1 and len(args) == len(children[0].children)
            remedy = "; pass them as one tuple" if fits else ""
            return f"{len(args)} by position, and it takes {len(children)}{remedy}"
        bound, rest = self._bound(args, kwargs)
        names = self._shown or [self._place.format(position) for position in range(len(children))]
        missing = [*names[len(tuple(bound)) :], *(str(key) for key in self._kwargs.keys or () if key not in rest)]
        unknown = [repr(key) for key in rest if key not in (self._kwargs.keys or ())]
        told = [f"{' and '.join(map(printable, missing))} missing"] if missing else []
        return "; ".join([*told, *([f"it has no {', '.join(unknown)}"] if unknown else [])])

    def _bound(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Positional arguments that were given by keyword, in their places."""
        rest = dict(kwargs)
        by_name = []
        for name in self._parameters[len(args) :]:
            if name not in rest:
                break
            by_name.append(rest.pop(name))
        return (*args, *by_name), rest

    def __str__(self) -> str:
        """`(x, cache=(*, *), scale=*)`; `*` for a tensor or number whose name is not known."""
        return _call_text(self._spec, self._shown)


def _positional(num_inputs: int) -> TreeSpec:
    flat = TreeSpec("builtins.tuple", (LEAF,) * num_inputs)
    return TreeSpec("builtins.tuple", (flat, TreeSpec("builtins.dict", (), ())))


def spec_of(encoded: str, num_values: int) -> TreeSpec | None:
    """The spec in `encoded`, unless it speaks of other values than the method has (training adds gradients)."""
    spec = parse_treespec(encoded)
    return spec if spec is not None and spec.num_leaves == num_values else None


def _call_text(arguments: TreeSpec, parameters: Sequence[str] = ()) -> str:
    args, kwargs = arguments.children
    positional = [
        name if child == LEAF else f"{name}={child}" for name, child in zip(parameters, args.children, strict=False)
    ] or list(map(str, args.children))
    by_name = [f"{printable(str(key))}={spec}" for key, spec in zip(kwargs.keys or (), kwargs.children, strict=True)]
    return f"({', '.join([*positional, *by_name])})"
