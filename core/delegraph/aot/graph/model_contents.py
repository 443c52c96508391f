"""nn.Module -> the containers that it reaches, with what stands in them: modules, plain objects, lists, closures …

    self.cache, a SimpleNamespace       {"key": tensor, "length": 3}
    self.blocks.0, what it registered   {"mask": tensor}

torch.export looks at registered parameters and buffers alone; what `forward` uses and assigns may lie anywhere here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final

import torch

__all__ = ["Contents", "contents_of", "parts_of", "tensors_of"]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind of container is read, written, and called an item of."""

    read: Callable[[Any], dict[Any, object]]
    write: Callable[[Any, Mapping[Any, object]], None]
    suffix: Callable[[object], str]


@dataclass(frozen=True, slots=True)
class Contents:
    """A container that can be written, and what stood in it when it was looked at.

    path: how Python calls it, `self.cache`; of what a module has registered, the module's own.
    owner: the innermost module on the way to it.
    """

    path: str
    owner: torch.nn.Module
    container: Any
    items: Mapping[Any, object]
    kind: _Kind

    def now(self) -> Mapping[Any, object]:
        """The items that stand in it now."""
        return self.kind.read(self.container)

    def restore(self) -> None:
        """Put back what stood in it, if that has changed."""
        now = self.now()
        if now.keys() != self.items.keys() or any(now[key] is not item for key, item in self.items.items()):
            self.kind.write(self.container, self.items)

    def place(self, key: object) -> str:
        """How Python calls the item under `key`: `self.cache.key`."""
        return self.path + self.kind.suffix(key)


def contents_of(model: torch.nn.Module) -> list[Contents]:
    """Everything that `model` reaches, each container once, from the outside in."""
    everything: list[Contents] = []
    seen: set[int] = set()
    waiting: deque[tuple[str, torch.nn.Module, object]] = deque([("self", model, model)])
    while waiting:
        path, owner, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        owner = value if isinstance(value, torch.nn.Module) else owner
        for name, container, kind in _containers(path, value):
            contents = Contents(name, owner, container, kind.read(container), kind)
            everything.append(contents)
            waiting.extend((contents.place(key), owner, item) for key, item in contents.items.items())
        waiting.extend((path + suffix, owner, item) for suffix, item in _inside(value))
    return everything


def parts_of(value: object) -> tuple[Mapping[Any, object], Callable[[object], str]] | None:
    """The parts of a tuple, list, dict or plain object, and how Python calls each; None for anything else."""
    if isinstance(value, tuple):
        return dict(enumerate(value)), _item
    if isinstance(value, torch.nn.Module):
        return None
    kind = next((kind for _, _, kind in _containers("", value)), None)
    return None if kind is None else (kind.read(value), kind.suffix)


def tensors_of(contents: Iterable[Contents]) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that stands in one of them, or in a tuple there, with its place."""
    waiting = [(each.place(key), item) for each in contents for key, item in each.items.items()]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield place, value
        elif isinstance(value, tuple):
            waiting.extend((f"{place}[{index}]", item) for index, item in enumerate(value))


# ---- the kinds of containers -----------------------------------------------------------------------

_OWN: Final = frozenset(vars(torch.nn.Module()))
"""The attributes of every module: its hooks, and what it registers, which are containers by themselves."""

_REGISTERED: Final = ("_parameters", "_buffers", "_modules")
_DATA: Final = (torch.Tensor, bool, int, float, list, dict, type(None))


def _containers(path: str, value: object) -> Iterator[tuple[str, object, _Kind]]:
    """The containers that `value` is, each with its name."""
    if isinstance(value, torch.nn.Module):
        registered = (vars(value).get(name) for name in _REGISTERED)
        yield from ((path, container, _REGISTRY) for container in registered if isinstance(container, dict))
        for kind in type(value).__mro__:
            if _is_a_users(kind):
                yield kind.__name__, kind, _CLASS
    if isinstance(value, dict):
        yield path, value, _DICT
    elif isinstance(value, (list, deque)):
        yield path, value, _LIST
    elif isinstance(value, CellType):
        yield path, value, _CELL
    elif _is_object(value):
        yield path, value, _OBJECT


def _inside(value: object) -> Iterator[tuple[str, object]]:
    """The objects that are reached through `value`, and cannot be assigned to it."""
    if isinstance(value, tuple):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, FunctionType):
        names = value.__code__.co_freevars
        yield from ((f".{name}", cell) for name, cell in zip(names, value.__closure__ or (), strict=False))
    elif isinstance(value, MethodType):
        yield from (("", value.__self__), ("", value.__func__))
    elif isinstance(value, partial):
        yield from (("", value.func), (".args", value.args), (".keywords", value.keywords))


def _is_object(value: object) -> bool:
    """Whether it is a module, or an object of a class that neither torch nor Python brings along."""
    if isinstance(value, (torch.nn.Module, SimpleNamespace)):
        return True
    return (
        _is_a_users(type(value))
        and not isinstance(value, (torch.Tensor, type, ModuleType))
        and (hasattr(value, "__dict__") or hasattr(value, "__slots__"))
    )


def _is_a_users(kind: type) -> bool:
    library = str(kind.__module__).partition(".")[0]
    return library != "torch" and (library == "__main__" or library not in sys.stdlib_module_names)


def _attributes(value: object) -> dict[str, object]:
    names = {name for kind in type(value).__mro__ for name in _slots(kind)} - {"__dict__", "__weakref__"}
    slots = {name: getattr(value, name) for name in sorted(names) if hasattr(value, name)}
    hidden = _OWN if isinstance(value, torch.nn.Module) else ()
    return {**slots, **{name: item for name, item in getattr(value, "__dict__", {}).items() if name not in hidden}}


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _set_attributes(value: object, items: Mapping[str, object]) -> None:
    for name in _attributes(value).keys() - items.keys():
        object.__delattr__(value, name)
    for name, item in items.items():
        object.__setattr__(value, name, item)


def _set_dict(container: dict[object, object], items: Mapping[object, object]) -> None:
    container.clear()
    container.update(items)


def _set_list(container: list[object], items: Mapping[int, object]) -> None:
    container.clear()
    container.extend(items.values())


def _cell(container: CellType) -> dict[str, object]:
    try:
        return {"cell_contents": container.cell_contents}
    except ValueError:  # it is empty
        return {}


def _set_cell(container: CellType, items: Mapping[str, object]) -> None:
    for item in items.values():
        container.cell_contents = item


def _class_data(container: type) -> dict[str, object]:
    return {name: item for name, item in vars(container).items() if isinstance(item, _DATA) and name[:2] != "__"}


def _set_class(container: type, items: Mapping[str, object]) -> None:
    for name in _class_data(container).keys() - items.keys():
        delattr(container, name)
    for name, item in items.items():
        if vars(container).get(name) is not item:
            setattr(container, name, item)


def _attribute(name: object) -> str:
    return f".{name}"


def _item(key: object) -> str:
    return f"[{key!r}]"


def _nothing(_key: object) -> str:
    return ""


_REGISTRY: Final = _Kind(dict, _set_dict, _attribute)
_DICT: Final = _Kind(dict, _set_dict, _item)
_LIST: Final = _Kind(lambda container: dict(enumerate(container)), _set_list, _item)
_CELL: Final = _Kind(_cell, _set_cell, _nothing)
_OBJECT: Final = _Kind(_attributes, _set_attributes, _attribute)
_CLASS: Final = _Kind(_class_data, _set_class, _attribute)
