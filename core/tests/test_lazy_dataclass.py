"""Classes of `delegraph.lazy_dataclass` are those of the standard library in all that one can see of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import weakref
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import pytest

from delegraph import lazy_dataclass

OPTIONS: list[dict[str, bool]] = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {"slots": True, "eq": False, "weakref_slot": True},
    {"frozen": True, "slots": True, "weakref_slot": True, "eq": False},
]


def classes(decorate: Callable[..., Any], options: dict[str, bool]) -> tuple[Any, Any]:
    """A class with every kind of field, and one derived from it."""

    class Base:
        """Documented."""

        KIND: ClassVar[int] = 3
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: object = field(default=None, compare=False, repr=False)
        e: Any = None

        def twice(self) -> int:
            return 2 * self.a

    base = decorate(**options)(Base)

    class Derived(base):  # type: ignore[misc]
        f: int = 7

        def __post_init__(self) -> None:
            object.__setattr__(self, "f", self.f + 1)

    return base, decorate(**{name: options[name] for name in options if name != "weakref_slot"})(Derived)


def weakly(value: object) -> bool:
    """Whether it can be referred to weakly."""
    return not isinstance(outcome(lambda: weakref.ref(value)), tuple)


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


@pytest.fixture(params=OPTIONS, ids="-".join)
def pairs(request: pytest.FixtureRequest) -> list[tuple[Any, Any]]:
    ours = classes(lazy_dataclass.dataclass, request.param)
    return list(zip(ours, classes(dataclasses.dataclass, request.param), strict=True))


def test_arguments_and_defaults(pairs: list[tuple[Any, Any]]) -> None:
    for pair in pairs:
        for args, named in [((1,), {}), ((1, "x", [2]), {"e": 5}), ((), {}), ((1,), {"z": 1}), ((1,), {"a": 1})]:
            ours, theirs = (outcome(lambda: repr(cls(*args, **named))) for cls in pair)  # noqa: B023
            assert ours == theirs
        ours, theirs = (cls(1) for cls in pair)
        assert ours.c is not pair[0](1).c
        assert dataclasses.astuple(ours) == dataclasses.astuple(theirs)


def test_comparing_and_hashing(pairs: list[tuple[Any, Any]]) -> None:
    for pair in pairs:
        ours, theirs = (
            [cls(1) == cls(1), cls(1) != cls(2), cls(1, d=1) == cls(1, d=2), cls(1) == (1, "b")] for cls in pair
        )
        assert ours == theirs
        ours, theirs = (outcome(lambda: hash(cls(1, c=()))) for cls in pair)  # noqa: B023
        assert ours == theirs or pair[1].__hash__ is object.__hash__


def assigned(value: Any) -> None:
    value.a = 2


def deleted(value: Any) -> None:
    del value.b


def test_assigning(pairs: list[tuple[Any, Any]]) -> None:
    for pair in pairs:
        for act in (assigned, deleted):
            ours, theirs = (outcome(partial(act, cls(1))) for cls in pair)
            assert ours == theirs
        assert dataclasses.replace(pair[0](1), a=4).twice() == 8


def test_what_others_read_of_them(pairs: list[tuple[Any, Any]]) -> None:
    for ours, theirs in pairs:
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert ours.__match_args__ == theirs.__match_args__
        assert (ours.__doc__ or "").partition("(")[0] == (theirs.__doc__ or "").partition("(")[0]
        assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
        assert dataclasses.asdict(ours(1)) == dataclasses.asdict(theirs(1))
        assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
        assert ours.__init__.__qualname__ == theirs.__init__.__qualname__
        assert weakly(ours(1)) == weakly(theirs(1))


def test_the_library_derives_from_them() -> None:
    base, _ = classes(lazy_dataclass.dataclass, {"frozen": True, "slots": True})

    @dataclasses.dataclass(frozen=True)
    class Derived(base):  # type: ignore[misc]
        f: int = 7

    assert repr(Derived(1)).endswith("Derived(a=1, b='b', c=[], e=None, f=7)")
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Free", (base,), {}))


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Sent:
    """Sent to another process, and copied."""

    numbers: tuple[int, ...]
    me: Any = None


def test_pickling_and_copying() -> None:
    sent = Sent((1, 2), me=[3])
    for copied in (copy.copy(sent), copy.deepcopy(sent), pickle.loads(pickle.dumps(sent))):
        assert copied == sent
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'me'"):
        sent.me = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'me'"):
        del sent.me
    holder: list[object] = []
    holder.append(Sent((), me=holder))
    assert repr(holder) == "[Sent(numbers=(), me=[...])]"


def test_nothing_is_compiled_as_a_class_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(dataclasses, "_create_fn", lambda name, *_, **__: compiled.append(name), raising=False)
    monkeypatch.setattr(dataclasses, "exec", lambda *_: compiled.append("exec"), raising=False)
    base, _ = classes(lazy_dataclass.dataclass, {"slots": True})
    assert not compiled
    for number in range(100):
        assert base(number).twice() == 2 * number
        if number < 10:
            assert not inspect.isfunction(base.__dict__["__init__"])
    assert inspect.isfunction(base.__dict__["__init__"])


@pytest.mark.parametrize("made_before", [0, 100])
def test_an_object_is_made_alike_before_and_after_that(made_before: int) -> None:
    (ours, _), (theirs, _) = classes(lazy_dataclass.dataclass, {}), classes(dataclasses.dataclass, {})
    for number in range(made_before):
        ours(number)
    for args, named in [((), {"b": 1}), ((1, 2, [], 4, 5, 6), {}), ((1,), {"a": 2}), ((), {"b": 1, "z": 2})]:
        assert outcome(lambda: repr(ours(*args, **named))) == outcome(lambda: repr(theirs(*args, **named)))  # noqa: B023
    assert ours(2, e=[]) == ours(a=2, e=[])


def test_fields_and_replace() -> None:
    base, derived = classes(lazy_dataclass.dataclass, {"frozen": True, "slots": True})
    assert [part.name for part in lazy_dataclass.fields(derived)] == ["a", "b", "c", "d", "e", "f"]
    assert lazy_dataclass.replace(base(1, "x"), a=3) == base(3, "x")
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        lazy_dataclass.replace(base(1), z=3)

    @dataclasses.dataclass(frozen=True)
    class Library(base):  # type: ignore[misc]
        g: int = field(default=8)

    assert [part.default for part in lazy_dataclass.fields(Library)][-1] == 8
    assert lazy_dataclass.fields(Library)[0].default is lazy_dataclass.MISSING
    assert lazy_dataclass.is_dataclass(base)
    assert lazy_dataclass.is_dataclass(Library(1))
    assert not lazy_dataclass.is_dataclass(int)


def test_an_order() -> None:
    @lazy_dataclass.dataclass(frozen=True, slots=True, order=True)
    class Version:
        major: int
        minor: int = 0

    assert sorted([Version(2), Version(1, 5), Version(1)]) == [Version(1), Version(1, 5), Version(2)]
    assert Version(1) <= Version(1)
    with pytest.raises(TypeError, match="'<' not supported"):
        Version(1) < (1, 0)  # type: ignore[operator]  # noqa: B015
