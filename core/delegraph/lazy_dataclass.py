"""`dataclass` for what runs on devices: nothing is made before it is needed, and `dataclasses` is not imported.

    from delegraph.lazy_dataclass import dataclass, field      # the library's functions fit such classes, too

The standard library's looks at every annotation, writes up to eight functions and compiles them as a class is
imported: 0.7 ms a class, and a program that runs imports eighty and makes a few objects each of forty. Here a class
takes 0.02 ms: it has its slots at once, and a method from when that is first looked up; so it is with
`__dataclass_fields__`, by which the library knows such classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

__all__ = ["MISSING", "Field", "dataclass", "field", "fields", "is_dataclass", "replace"]

_T = TypeVar("_T", bound=type)


class _Word:
    """A value that is told from all others, and shown as the library shows its own."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


_ABSENT: Final = _Word("<factory>")
"""An argument that was left out, for which a default is made: so a signature shows it."""

if TYPE_CHECKING:
    from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
else:
    MISSING = _Word("<missing>")

    class Field:
        """A field as a class describes it; `like` is the library's, where it does so with that."""

        __slots__ = ("compare", "default", "default_factory", "like", "name", "repr", "type")

        def __init__(self, default: Any, default_factory: Any, repr: bool, compare: bool, like: Any = None) -> None:
            self.default, self.default_factory, self.repr, self.compare = default, default_factory, repr, compare
            self.like = like

    def field(
        *, default: Any = MISSING, default_factory: Any = MISSING, repr: bool = True, compare: bool = True
    ) -> Field:
        """`dataclasses.field` with these options."""
        return Field(default, default_factory, repr, compare)

    def fields(of: Any) -> tuple[Field, ...]:
        """`dataclasses.fields`, each as a `Field` of this module."""
        cls = of if isinstance(of, type) else type(of)
        if "__lazy_fields__" in cls.__dict__:
            return tuple(cls.__lazy_fields__.values())
        import dataclasses

        return tuple(map(_library_field, dataclasses.fields(of)))

    def is_dataclass(value: Any) -> bool:
        """`dataclasses.is_dataclass`."""
        return hasattr(value, "__lazy_fields__") or hasattr(value, "__dataclass_fields__")

    def replace(value: Any, /, **changes: Any) -> Any:
        """`dataclasses.replace`."""
        return type(value)(**{part.name: getattr(value, part.name) for part in fields(value)} | changes)

    def dataclass(
        *, frozen: bool = False, slots: bool = False, eq: bool = True, order: bool = False, weakref_slot: bool = False
    ) -> Callable[[_T], _T]:
        """`dataclasses.dataclass` with these options, for classes whose every field is an argument."""

        def made(cls: _T) -> _T:
            own = _own_fields(cls)
            every = _inherited_fields(cls) | own
            more = {"__lazy_fields__": every, "__match_args__": tuple(every), "__replace__": replace}
            more |= {
                name: method
                for name, method in _methods(frozen=frozen, slots=slots, eq=eq, order=order).items()
                if name not in cls.__dict__
            }
            if eq and cls.__dict__.get("__hash__") is None:
                more["__hash__"] = _Later(_hash) if frozen else None
            more["__doc__"] = cls.__doc__ or cls.__name__  # for which the library would make a signature
            if slots:
                return _with_slots(cls, every, own, more, weakref_slot=weakref_slot)
            for name, part in own.items():
                if name in cls.__dict__:
                    _set_default(cls, name, part)
            for name, value in more.items():
                setattr(cls, name, value)
                if isinstance(value, _Later):
                    value.__set_name__(cls, name)
            return cls

        return made


_Fields: TypeAlias = "Mapping[str, Field[Any]]"

# ---- the class ---------------------------------------------------------------------------------------


def _own_fields(cls: type) -> dict[str, Field[Any]]:
    own = {}
    for name, kind in cls.__annotations__.items():
        if "ClassVar" not in str(kind).partition("[")[0]:
            own[name] = part = _field_of(cls.__dict__.get(name, MISSING))
            part.name, part.type = name, kind
    return own


def _field_of(default: Any) -> Any:
    if isinstance(default, Field):
        return default
    kind = type(default)
    if kind.__module__ == "dataclasses" and kind.__qualname__ == "Field":
        return _library_field(default)
    return field(default=default)


def _library_field(like: Any) -> Any:
    from dataclasses import MISSING as ABSENT

    default, make = (MISSING if value is ABSENT else value for value in (like.default, like.default_factory))
    made: Any = Field(default, make, like.repr, like.compare, like)  # type: ignore[call-arg]
    made.name, made.type = like.name, like.type
    return made


def _inherited_fields(cls: type) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-2:0:-1]:
        names = base.__dict__
        if "__lazy_fields__" in names:
            fields |= names["__lazy_fields__"]
        elif "__dataclass_fields__" in names:
            fields |= {name: _library_field(like) for name, like in names["__dataclass_fields__"].items()}
    return fields


def _with_slots(cls: Any, every: _Fields, own: _Fields, more: dict[str, Any], *, weakref_slot: bool) -> Any:
    """The class once more: what has slots is made with them."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
    slots = [*every, *(["__weakref__"] if weakref_slot else [])]
    names = {name: value for name, value in cls.__dict__.items() if name not in own and name not in _UNSLOTTED}
    names |= more | {"__slots__": tuple(name for name in slots if name not in inherited)}
    return type(cls)(cls.__name__, cls.__bases__, names | {"__qualname__": cls.__qualname__})


_UNSLOTTED: Final = ("__dict__", "__weakref__")


def _set_default(cls: type, name: str, part: Field[Any]) -> None:
    if part.default is MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, part.default)


# ---- its methods -------------------------------------------------------------------------------------


class _Later:
    """Stands for an attribute of a class until that is looked up, then puts what `make` makes of the class there."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self._make(self._cls)
        setattr(self._cls, self._name, made)
        return made.__get__(instance, owner) if callable(made) else made


class _Init(_Later):
    """`__init__`: the fields of a class's first objects are set in a loop, for compiling it takes as long as fifty."""

    __slots__ = ("_left", "_store")

    def __init__(self, *, frozen: bool) -> None:
        self._store = object.__setattr__ if frozen else setattr
        self._left = 50
        super().__init__(partial(_init, frozen=frozen))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or self._left <= 0:
            return super().__get__(instance, owner)
        self._left -= 1
        return partial(self._fill, instance)

    def _fill(self, instance: Any, /, *args: Any, **named: Any) -> None:
        cls: Any = self._cls
        values = _arranged(cls.__lazy_fields__, args, named)
        if values is None:
            super().__get__(instance)(*args, **named)  # which says what does not fit
            return
        for name, value in values.items():
            self._store(instance, name, value)
        if hasattr(cls, "__post_init__"):
            instance.__post_init__()


def _arranged(fields: _Fields, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
    """The fields' values, in order; None if these are no arguments for them."""
    said = dict(zip(fields, args, strict=False)) | named
    if len(said) != len(args) + len(named) or not said.keys() <= fields.keys():
        return None
    values = {}
    for name, part in fields.items():
        if name in said:
            values[name] = said[name]
        elif part.default is not MISSING:
            values[name] = part.default
        elif part.default_factory is not MISSING:
            values[name] = part.default_factory()
        else:
            return None
    return values


def _init(cls: Any, *, frozen: bool) -> Any:
    """`__init__` as the library writes it: the fields' order and defaults, then `__post_init__`."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_absent": _ABSENT}
    parameters, body = ["self"], []
    for name, part in cls.__lazy_fields__.items():
        value, default = name, ""
        if part.default is not MISSING:
            scope[f"_default_{name}"], default = part.default, f"=_default_{name}"
        elif part.default_factory is not MISSING:
            scope[f"_make_{name}"], default = part.default_factory, "=_absent"
            value = f"_make_{name}() if {name} is _absent else {name}"
        parameters.append(name + default)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), scope)  # noqa: S102 - our fields
    init = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {part.name: part.type for part in fields(cls)} | {"return": None}
    return init


def _repr(cls: type) -> Callable[[Any], str]:
    from reprlib import recursive_repr

    names = [part.name for part in fields(cls) if part.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _compared(cls: type) -> Callable[[Any], tuple[object, ...]]:
    names = [part.name for part in fields(cls) if part.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq(cls: type) -> Callable[[Any, object], bool]:
    values = _compared(cls)

    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _order(cls: type, compare: Callable[[Any, Any], bool]) -> Callable[[Any, object], bool]:
    values = _compared(cls)
    return lambda self, other: compare(values(self), values(other)) if type(other) is type(self) else NotImplemented


def _hash(cls: type) -> Callable[[Any], int]:
    values = _compared(cls)
    return lambda self: hash(values(self))


def _setattr(cls: Any) -> Callable[[Any, str, Any], None]:
    def __setattr__(self: object, name: str, value: object) -> None:
        _refuse(cls, self, "assign to", name)
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _delattr(cls: Any) -> Callable[[Any, str], None]:
    def __delattr__(self: object, name: str) -> None:
        _refuse(cls, self, "delete", name)
        super(cls, self).__delattr__(name)

    return __delattr__


def _refuse(cls: Any, value: object, act: str, name: str) -> None:
    if type(value) is cls or name in cls.__lazy_fields__:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {act} field {name!r}")


def _getstate(cls: type) -> Callable[[Any], list[object]]:
    names = [part.name for part in fields(cls)]
    return lambda self: [getattr(self, name) for name in names]


def _setstate(cls: type) -> Callable[[Any, list[object]], None]:
    names = [part.name for part in fields(cls)]

    def __setstate__(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__


# ---- for the library ---------------------------------------------------------------------------------


def _library_class(cls: Any, *, frozen: bool) -> Any:
    """A class with the same fields that the library made."""
    import dataclasses

    described = []
    for part in cls.__lazy_fields__.values():
        options = {name: getattr(part, name) for name in ("default", "default_factory", "repr", "compare")}
        options = {name: value for name, value in options.items() if value is not MISSING}
        described.append((part.name, part.type, part.like or dataclasses.field(**options)))
    made: Any = dataclasses.make_dataclass(cls.__name__, described, init=False, repr=False, eq=False)
    made.__dataclass_params__.frozen = frozen
    return made


def _methods(*, frozen: bool, slots: bool, eq: bool, order: bool) -> dict[str, Any]:
    makers: dict[str, Callable[[Any], Any]] = {
        "__dataclass_fields__": lambda cls: _library_class(cls, frozen=frozen).__dataclass_fields__,
        "__dataclass_params__": lambda cls: _library_class(cls, frozen=frozen).__dataclass_params__,
        "__repr__": _repr,
    }
    if eq:
        makers["__eq__"] = _eq
    if order:
        makers |= {f"__{each.__name__}__": partial(_order, compare=each) for each in (lt, le, gt, ge)}
    if frozen:
        makers |= {"__setattr__": _setattr, "__delattr__": _delattr}
    if frozen and slots:
        makers |= {"__getstate__": _getstate, "__setstate__": _setstate}  # whose state refuses to be assigned
    return {"__init__": _Init(frozen=frozen)} | {name: _Later(make) for name, make in makers.items()}
