"""`dataclass` for what runs on devices: nothing is compiled before it is needed.

    from delegraph.lazy_dataclass import dataclass      # `field`, `fields` and `replace` of dataclasses fit

The standard library's writes and compiles up to eight functions as a class is imported, half a millisecond each time,
and a program that runs imports a hundred classes and makes objects of forty. Here that library sees to fields, slots
and defaults alone; `__init__` is compiled for the first object, and the other methods are closures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

__all__ = ["dataclass"]

_T = TypeVar("_T", bound=type)
_Fields: TypeAlias = Sequence[dataclasses.Field[Any]]


class _Absent:
    """An argument that was left out, for which a default is made; a signature shows it as the library's does."""

    def __repr__(self) -> str:
        return "<factory>"


_ABSENT: Final = _Absent()

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, frozen: bool = False, slots: bool = False, eq: bool = True, weakref_slot: bool = False
    ) -> Callable[[_T], _T]:
        """`dataclasses.dataclass` with these options, for classes whose every field is an argument."""

        def made(cls: _T) -> _T:
            cls.__doc__ = cls.__doc__ or cls.__name__  # for which the library would make a signature
            is_below_frozen = any(_is_frozen(base) for base in cls.__mro__[1:])  # the library insists on the same
            finish = dataclasses.dataclass(
                init=False, repr=False, eq=False, frozen=is_below_frozen, slots=slots, weakref_slot=weakref_slot
            )
            cls = finish(cls)
            cls.__dataclass_params__.frozen = frozen
            fields = dataclasses.fields(cls)
            for name, method in _methods(cls, fields, frozen=frozen, slots=slots, eq=eq).items():
                if name not in cls.__dict__:
                    setattr(cls, name, method)
            if eq and not _has_own_hash(cls):
                cls.__hash__ = _hash(fields) if frozen else None
            return cls

        return made


def _is_frozen(cls: type) -> bool:
    parameters: Any = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _methods(cls: type, fields: _Fields, *, frozen: bool, slots: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__init__": _Init(cls), "__repr__": _repr(fields)}
    if eq:
        methods["__eq__"] = _eq(fields)
    if frozen:
        methods |= _refusals(cls, fields)
    if frozen and slots:
        methods |= _state(fields)
    return methods


class _Init:
    """Stands for `__init__` until that is looked up, then puts it into its place."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        init = _init(self._cls)
        self._cls.__init__ = init  # type: ignore[misc]
        return init.__get__(instance, owner)


def _init(cls: type) -> Any:
    """`__init__` as the library writes it: the fields' order and defaults, then `__post_init__`."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": _ABSENT}
    parameters, body, fields = ["self"], [], dataclasses.fields(cls)
    for field in fields:
        name = value = field.name
        default = ""
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"], default = field.default, f"=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"], default = field.default_factory, "=_absent"
            value = f"_make_{name}() if {name} is _absent else {name}"
        parameters.append(name + default)
        body.append(f"_set(self, {name!r}, {value})" if _is_frozen(cls) else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), scope)  # noqa: S102 - our fields
    init = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    return init


def _repr(fields: _Fields) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _compared(fields: _Fields) -> Callable[[Any], tuple[object, ...]]:
    names = [field.name for field in fields if field.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq(fields: _Fields) -> Callable[[Any, object], bool]:
    values = _compared(fields)

    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _has_own_hash(cls: type) -> bool:
    own = cls.__dict__.get("__hash__", _ABSENT)
    return own is not _ABSENT and own is not None


def _hash(fields: _Fields) -> Callable[[Any], int]:
    values = _compared(fields)
    return lambda self: hash(values(self))


def _refusals(cls: Any, fields: _Fields) -> dict[str, Any]:
    names = frozenset(field.name for field in fields)

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(fields: _Fields) -> dict[str, Any]:
    """The state of objects with slots that refuse assignments, for `pickle` and `copy`."""
    names = [field.name for field in fields]

    def __getstate__(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}
