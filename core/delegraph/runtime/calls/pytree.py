"""The structure of a model's arguments and results: torch's pytree spec, read from JSON, without torch.

A `.pte` carries a spec for each method's ((args), {kwargs}) and for its result (`ContainerMetadata`), in the format of
`torch.utils._pytree.treespec_dumps`, protocol 1. Nothing that a spec names is ever imported: containers of other
people's types are dicts if the spec has their keys, else tuples; but a NamedTuple or a dataclass whose class the caller
hands over, which a spec has by its name.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.lazy_dataclass import dataclass, replace
from delegraph.program.named_classes import fields_of, is_named_class

PROTOCOL: Final = 1

Key: TypeAlias = str | int | float | None
"""Of a dict: what JSON has as a single value."""


@dataclass(frozen=True, slots=True)
class TreeSpec:
    """A leaf (`kind` ""), or a container of `children`: its type's name, and its keys if it has any."""

    kind: str = ""
    children: tuple[TreeSpec, ...] = ()
    keys: tuple[Key, ...] | None = None
    max_length: int | None = None
    absent_keys: tuple[str, ...] = ()
    """Fields of a dataclass that were None when the model was exported; they are no children."""
    class_name: str = ""
    """Of a NamedTuple or a dataclass."""
    made: type[Any] | None = None
    """The caller's class of that name, which `unflatten` makes one of."""

    def with_types(self, types: Mapping[str, type[Any]]) -> TreeSpec:
        """The same, which gives results of the caller's classes, by name. Raises `InvalidArgument` for a class that
        has not the fields that the model's had."""
        if not self.kind:
            return self
        children = tuple(child.with_types(types) for child in self.children)
        made = types.get(self.class_name)
        if made is not None:
            names = fields_of(made)
            fits = len(names) == len(children) if self.keys is None else {*self.keys} <= {*names}
            if not fits:
                mine = f"{len(children)} fields" if self.keys is None else ", ".join(map(str, self.keys))
                raise InvalidArgument(
                    f"types has {made.__qualname__} with the fields {', '.join(names)}, and the model's"
                    f" {self.class_name} has {mine}"
                )
        return replace(self, children=children, made=made)

    @classmethod
    def of(cls, tree: object, depth: int = 0) -> TreeSpec:
        """The structure of `tree` in terms of dicts, lists and tuples, down to ten levels."""
        if depth == 10:
            return LEAF
        if isinstance(tree, Mapping):
            return cls("builtins.dict", tuple(cls.of(item, depth + 1) for item in tree.values()), tuple(tree))
        if isinstance(tree, tuple | list):
            kind = "builtins.list" if isinstance(tree, list) else "builtins.tuple"
            return cls(kind, tuple(cls.of(item, depth + 1) for item in tree))
        return LEAF

    @property
    def is_dict(self) -> bool:
        """Whether it is a plain dict."""
        return self.kind == "builtins.dict"

    @property
    def num_leaves(self) -> int:
        """How many leaves there are, however deep."""
        return sum(child.num_leaves for child in self.children) if self.kind else 1

    def flatten(self, tree: object) -> list[object]:
        """The leaves of `tree`, in order. Raises `InvalidArgument` if its structure is another one."""
        leaves: list[object] = []
        self._flatten_into(tree, leaves)
        return leaves

    def unflatten(self, leaves: Iterable[object]) -> Any:
        """`leaves`, one for each leaf, in this structure."""
        return self._build(iter(leaves))

    def paths(self, prefix: str = "") -> Iterator[str]:
        """How to write each leaf in Python: `args[0]['mask']`."""
        if not self.kind:
            yield prefix
        for position, child in enumerate(self.children):
            yield from child.paths(f"{prefix}[{position if self.keys is None else self.keys[position]!r}]")

    def _flatten_into(self, tree: object, leaves: list[object]) -> None:
        if not self.kind:
            leaves.append(tree)
            return
        items = self._items(tree)
        if items is None or len(items) != len(self.children):
            raise InvalidArgument(f"{TreeSpec.of(tree)} stands where the model takes {self}")
        for child, item in zip(self.children, items, strict=True):
            child._flatten_into(item, leaves)

    def _items(self, tree: object) -> Sequence[object] | None:
        """The children of `tree`, or None if it is no such container."""
        if self.keys is None:
            return tree if isinstance(tree, tuple | list | deque) else None
        if isinstance(tree, Mapping):
            return [tree[key] for key in self.keys] if self._has_my_keys(tree) else None
        if self.kind in _MAPPINGS and not self.class_name:
            return None
        names = [key for key in self.keys if isinstance(key, str) and hasattr(tree, key)]
        return [getattr(tree, name) for name in names] if len(names) == len(self.keys) else None

    def _has_my_keys(self, tree: Mapping[Key, object]) -> bool:
        # A field that was None at export is no child, so an argument may have it only as None.
        present = {key for key in tree if key not in self.absent_keys or tree[key] is not None}
        return present == set(self.keys or ())

    def _build(self, leaves: Iterator[object]) -> object:
        if not self.kind:
            return next(leaves)
        # The order of children is that of the file, whose keys may be in another order than the caller's.
        items = [child._build(leaves) for child in self.children]
        if self.made is not None:
            fields = fields_of(self.made)
            named = zip(fields if self.keys is None else map(str, self.keys), items, strict=True)
            return self.made(**{**dict.fromkeys(fields), **dict(named)})  # torch leaves out a field that was None
        if self.keys is not None:
            result = dict(zip(self.keys, items, strict=True)) | dict.fromkeys(self.absent_keys)
            return OrderedDict(result) if self.kind == "collections.OrderedDict" else result
        if self.kind == "builtins.list":
            return items
        return deque(items, self.max_length) if self.kind == "collections.deque" else tuple(items)

    def __str__(self) -> str:
        """`(*, {'mask': *})`, a `*` for each leaf."""
        if not self.kind:
            return "*"
        if self.keys is not None:
            return _braces(zip(self.keys, self.children, strict=True))
        return _brackets(self.children, "[]" if self.kind == "builtins.list" else "()")


def types_by_name(types: Iterable[type[Any]]) -> dict[str, type[Any]]:
    """Classes that a caller hands over, by name. Raises `InvalidArgument` for what is no NamedTuple or dataclass, and
    for two of one name."""
    by_name: dict[str, type[Any]] = {}
    for kind in types:
        if not is_named_class(kind):
            raise InvalidArgument(f"types takes classes of NamedTuples and dataclasses, not {kind!r}")
        if by_name.setdefault(kind.__name__, kind) is not kind:
            raise InvalidArgument(f"types has two classes called {kind.__name__}; a program knows them by that name")
    return by_name


_MAPPINGS: Final = frozenset({"builtins.dict", "collections.OrderedDict", "collections.defaultdict"})

LEAF: Final = TreeSpec()


def parse_treespec(text: str) -> TreeSpec | None:
    """The spec in `text`; None if there is none there, or one in another encoding (ExecuTorch's own pytree library).

    Raises `InvalidProgram` if it is damaged.
    """
    if not text.startswith("["):
        return None
    try:
        protocol, root = json.loads(text)
        if protocol != PROTOCOL:
            return None
        return _parse(root)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidProgram(
            f"the container metadata is no pytree spec: {error!r:.200}; it begins {text[:80]!r}"
        ) from error


MAX_DEPTH: Final = 64
"""Containers in containers; a model's are some five deep. A file's must not exhaust the stack."""


def _parse(node: dict[str, Any], depth: int = 0) -> TreeSpec:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is more than {MAX_DEPTH} deep")
    if node["type"] is None:
        return LEAF
    children = tuple(_parse(child, depth + 1) for child in node["children_spec"])
    context = node["context"]
    if isinstance(context, str):
        try:
            context = json.loads(context)
        except ValueError:  # a name: the type of a namedtuple
            context = None
    name = node.get("class", "")
    spec = TreeSpec(str(node["type"]), children, *_keys_and_length(node["type"], context), class_name=str(name))
    _check(spec)
    return spec


def _check(spec: TreeSpec) -> None:
    """Raise unless every child has a place of its own in the structure of `spec`."""
    if spec.keys is not None and len(spec.keys) != len(spec.children):
        raise ValueError(f"{len(spec.keys)} keys for {len(spec.children)} children")
    keys = (*(spec.keys or ()), *spec.absent_keys)
    if not all(isinstance(key, str | int | float | None) for key in keys) or len(set(keys)) < len(keys):
        raise ValueError("a key is there twice, or is a container")
    length = spec.max_length
    if length is not None and (type(length) is not int or not len(spec.children) <= length < 2**31):
        raise ValueError(f"a deque of at most {length!r} for {len(spec.children)} children")


def _keys_and_length(kind: str, context: Any) -> tuple[tuple[Any, ...] | None, int | None, tuple[str, ...]]:
    if kind == "collections.defaultdict":
        context = context["dict_context"]
        return tuple(json.loads(context) if isinstance(context, str) else context), None, ()
    if kind == "collections.deque":
        return None, context, ()
    if not isinstance(context, list):
        return None, None, ()
    if len(context) == 2 and all(isinstance(names, list) for names in context):  # a registered dataclass
        return tuple(context[0]), None, tuple(context[1])
    return tuple(context), None, ()


def _braces(items: Iterable[tuple[object, object]]) -> str:
    return "{" + ", ".join(f"{key!r}: {text}" for key, text in items) + "}"


def _brackets(items: Sequence[object], pair: str) -> str:
    comma = "," if pair == "()" and len(items) == 1 else ""
    return f"{pair[0]}{', '.join(map(str, items))}{comma}{pair[1]}"
