"""JSON from anyone -> records of the types that it is said to have, or an error with the path to what is another.

    {"graph": {"nodes": [{"target": 3}]}}   as `GraphModule`   ──>   graph.nodes[0].target: 3 is no text

Types are closed: a record has its fields and no others, a union has one member, a number fits 64 bits, no key stands
twice. A text is read by the rule of its field, and refused where there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache
from types import UnionType
from typing import Any, Final, NoReturn, Union, get_args, get_origin, get_type_hints

from delegraph.errors import ETRecordError

__all__ = ["JsonReader", "parse_json", "read_json"]

DEEPEST: Final = 200
"""Values in one another; a body of control flow in a graph takes seven."""
LONGEST: Final = 300
"""Characters of a path in a message."""

Path = tuple[str | int, ...]
Rule = Callable[[Any], Any]


def parse_json(data: bytes | str) -> Any:
    """The value in `data`. Raises `ValueError` if it is no JSON, nests without end, or has a key twice."""
    try:
        return json.loads(data.decode() if isinstance(data, bytes) else data, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("values in one another without end") from error


def read_json(data: bytes, where: str) -> Any:
    """`parse_json`, its error an `ETRecordError` that names the file."""
    try:
        return parse_json(data)
    except ValueError as error:
        raise ETRecordError(f"{where}: no JSON as a program is written in: {error}; have it written again") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r:.80} is there twice")
    return made


@dataclass(frozen=True)
class JsonReader:
    """Reads values of given types.

    `texts` has the rule of each field of texts, by `Class.field`; `wholes` the rule of a field that is read by itself.
    A rule returns the value, or raises `ValueError`. `where` says in a message which file it is, `union` is the base of
    records of which one field is set.
    """

    where: str
    texts: Mapping[str, Rule]
    wholes: Mapping[str, Rule]
    union: type | None = None

    def read(self, kind: object, value: Any, path: Path = (), text: Rule | None = None) -> Any:
        """`value`, as `kind` has it. Raises `ETRecordError`."""
        if len(path) > DEEPEST:
            self.refuse(path, f"more than {DEEPEST} values in one another")
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return self._either(arguments, value, path, text)
        if origin is list:
            self._expect(list, value, path)
            return [self.read(arguments[0], item, (*path, place), text) for place, item in enumerate(value)]
        if origin is dict:
            self._expect(dict, value, path)
            return {self._key(key, path): self.read(arguments[1], value[key], (*path, key), text) for key in value}
        if is_dataclass(kind):
            self._expect(dict, value, path)
            return self._record(kind, value, path)
        if kind is str:
            self._expect(str, value, path)
            return self._by_rule(text, value, path)
        return self._number(kind, value, path)

    def refuse(self, path: Path, reason: object) -> NoReturn:
        """Raise, with the place of what is refused."""
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step:.80}" for step in path).lstrip(".")
        place = place if len(place) <= LONGEST else f"…{place[-LONGEST:]}"
        raise ETRecordError(f"{self.where}: {place or 'the whole'}: {reason}")

    def _expect(self, kind: type, value: object, path: Path) -> None:
        if type(value) is not kind:
            self.refuse(path, f"{value!r:.80} is no {_WORDS.get(kind, kind.__name__)}")

    def _either(self, kinds: tuple[Any, ...], value: object, path: Path, text: Rule | None) -> Any:
        if value is None and type(None) in kinds:
            return None
        rest = [kind for kind in kinds if kind is not type(None)]
        fitting = [kind for kind in rest if type(value) is (get_origin(kind) or kind)]
        return self.read(fitting[0] if fitting else rest[0], value, path, text)

    def _key(self, key: str, path: Path) -> str:
        return str(self._by_rule(_printable, key, (*path, key)))

    def _by_rule(self, rule: Rule | None, value: object, path: Path) -> Any:
        if rule is None:
            self.refuse(path, f"{value!r:.80}: no text is read here")
        try:
            return rule(value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.refuse(path, error)

    def _number(self, kind: Any, value: object, path: Path) -> Any:
        if kind is float:
            value = _INFINITE.get(value, value) if isinstance(value, str) else value
            if type(value) is int:
                value = float(value) if abs(value) < 2**63 else None
        self._expect(int if issubclass(kind, IntEnum) else kind, value, path)
        if type(value) is int and not -(2**63) <= value < 2**63:
            self.refuse(path, f"{value!r:.80} takes more than 64 bits")
        return self._by_rule(kind, value, path)

    def _record(self, kind: Any, value: dict[str, Any], path: Path) -> Any:
        types = _types(kind)
        for name in value:
            if name not in types:
                self.refuse((*path, name), f"{kind.__name__} has no such field")
        read = {name: self._field(kind, name, types[name], value[name], (*path, name)) for name in value}
        if self.union is not None and issubclass(kind, self.union):
            if len(read) != 1:
                self.refuse(path, f"{len(read)} values where there is one")
            return kind.create(**read)
        missing = _needed(kind) - read.keys()
        if missing:
            self.refuse(path, f"it has no {min(missing)}")
        return kind(**read)

    def _field(self, kind: type, name: str, type_: Any, value: object, path: Path) -> Any:
        place = f"{kind.__name__}.{name}"
        whole = self.wholes.get(place)
        if whole is not None:
            value = self._by_rule(whole, value, path)
        return self.read(type_, value, path, self.texts.get(place))


def _printable(text: str) -> str:
    if not text.isprintable() or len(text) > 1000:
        raise ValueError(f"{text!r:.80} is no name")
    return text


_types = cache(get_type_hints)


@cache
def _needed(kind: type) -> frozenset[str]:
    return frozenset(item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING)


_WORDS: Final = {str: "text", list: "list", dict: "object", int: "whole number", float: "number", bool: "true or false"}
_INFINITE: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
