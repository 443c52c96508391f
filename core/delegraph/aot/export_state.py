"""Assignments in a model's `forward`, while it is exported -> writes in place, where it had such a tensor there.

    self.count = self.count + x     a buffer, of whatever module           ──>  count.copy_(count + x)
    self.cache.key = key            a tensor of a plain object, likewise   ──>  cache.key.copy_(key)
    self.mask = mask, self.n += 1   everything else                        ──>  an `Assignment`

A write is a part of the graph, an assignment is none: torch.export knows those of the outermost module's buffers alone,
and forgets the others. When it has gone, the model has what it had.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import getsourcefile, getsourcelines
from typing import Any, Final, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from delegraph.aot.graph.model_contents import Contents, contents_of, parts_of, tensors_of
from delegraph.aot.torch_internals import (
    buffer_registration_hooks,
    get_tensor_data,
    is_traceable_wrapper_subclass,
    register_buffer_assignment_hook,
    set_tensor_data,
)

__all__ = ["ABSENT", "Assignment", "State", "assignments", "has_form_of", "kept_state"]

ABSENT: Final = object()
"""Where nothing stands."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A new object `after` in the place that Python calls `path`, and the one there `before`; `ABSENT` for nothing."""

    path: str
    owner: torch.nn.Module
    before: object
    after: object

    @property
    def location(self) -> str | None:
        """`file:line, in method: code`, as far as the owner's class shows it."""
        kind, name = type(self.owner), self.path.partition("[")[0].rpartition(".")[2]
        try:
            lines, first = getsourcelines(kind)
            body = ast.parse(textwrap.dedent("".join(lines))).body[0]
        except (OSError, TypeError, SyntaxError):
            return None
        for method in (
            node for node in ast.walk(body) if isinstance(node, ast.FunctionDef) and node.name != "__init__"
        ):
            for node in ast.walk(method):
                if name in _assigned(node):
                    line = node.lineno  # type: ignore[attr-defined]  # every statement and call has one
                    return f"{getsourcefile(kind)}:{first + line - 1}, in {method.name}: {lines[line - 1].strip()}"
        return None


def _assigned(node: ast.AST) -> set[str]:
    """The names of what a statement assigns or a method is called of, and those in a call of `register_buffer`."""
    match node:
        case ast.Assign(targets):
            written: list[ast.expr] = list(targets)
        case ast.AugAssign(target) | ast.AnnAssign(target):
            written = [target]
        case ast.Call(ast.Attribute(_, "register_buffer"), [ast.Constant(str(name)), *_]):
            return {name}
        case ast.Call(ast.Attribute(owner, _)):
            written = [owner]
        case _:
            return set()
    nodes = [part for target in written for part in ast.walk(target)]
    return {part.attr for part in nodes if isinstance(part, ast.Attribute)} | {
        part.id for part in nodes if isinstance(part, ast.Name)
    }


@dataclass(slots=True)
class State:
    """The assignments of a model's `forward`, in its last call, other than those that became writes."""

    model: torch.nn.Module
    aliases: Mapping[str, frozenset[str]]
    assigned: list[Assignment] = field(default_factory=list)
    _before: list[Contents] = field(default_factory=list)
    _depth: int = 0

    def begin(self, *_: object) -> None:
        """`forward` is called: note what is there. Assigned buffers are ours to write, not torch.export's."""
        self._depth += 1
        if self._depth == 1:
            self._before = contents_of(self.model)
            for key, hook in list(buffer_registration_hooks.items()):
                if hook.__module__ == register_buffer_assignment_hook.__module__:
                    del buffer_registration_hooks[key]

    def end(self, *_: object) -> None:
        """`forward` has returned: write what it assigned, and put back what was there."""
        self._depth -= 1
        if self._depth == 0:
            assigned = list(assignments(self._before))
            after = {each.path: each.after for each in assigned}
            written = [each for each in assigned if _fits(each) and self._is_alone(each, after)]
            _write(written)
            self.assigned = [each for each in assigned if all(each is not other for other in written)]
            for contents in self._before:
                contents.restore()

    def _is_alone(self, assignment: Assignment, after: Mapping[str, object]) -> bool:
        """Whether no place still shows the memory of the old tensor, in which a write would be seen."""
        others = self.aliases.get(assignment.path, ())
        return all(after.get(other) is assignment.after for other in others)


@contextmanager
def kept_state(model: torch.nn.Module) -> Iterator[State]:
    """While `model` is exported, once; then it is what it was before."""
    before = contents_of(model)
    state = State(model, _aliases(before))
    handles = [model.register_forward_pre_hook(state.begin, prepend=True), model.register_forward_hook(state.end)]
    try:
        with _DetachedData(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"The tensor attributes? .* assigned during export", UserWarning)
            yield state  # and whoever asks is told in our words
    finally:
        for handle in handles:
            handle.remove()
        for contents in before:
            contents.restore()


def _aliases(contents: Sequence[Contents]) -> dict[str, frozenset[str]]:
    """The places of tensors, each with those whose tensors lie in the same memory."""
    places: dict[StorageWeakRef, set[str]] = {}
    for place, tensor in tensors_of(contents):
        if tensor.layout is torch.strided and not is_traceable_wrapper_subclass(tensor):
            places.setdefault(StorageWeakRef(tensor.untyped_storage()), set()).add(place)
    return {place: frozenset(others) for others in places.values() for place in others if len(others) > 1}


class _DetachedData(TorchFunctionMode):
    """`tensor.data` is `tensor.detach()`, of the same memory, too, and setting it is a copy: a trace sees these."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func == get_tensor_data:
            return args[0].detach()
        if func == set_tensor_data and has_form_of(*args):
            return args[0].detach().copy_(args[1])
        if func == set_tensor_data:
            raise ValueError(
                "forward gives a tensor's .data another shape, dtype or device; a program keeps tensors of one form:"
                " write into one that is large enough, self.cache[:n] = …"
            )
        return func(*args, **(kwargs or {}))


# ---- what was assigned -----------------------------------------------------------------------------


def assignments(before: Sequence[Contents]) -> Iterator[Assignment]:
    """Each place in which something else stands now; of a tuple, list, dict or object that is new, its parts."""
    compared: set[tuple[int, int]] = set()
    for contents in before:
        yield from _differences(contents.items, contents.now(), contents.place, contents.owner, compared)


def _differences(
    before: Mapping[Any, object],
    after: Mapping[Any, object],
    place: Callable[[object], str],
    owner: torch.nn.Module,
    compared: set[tuple[int, int]],
) -> Iterator[Assignment]:
    for key in {**before, **after}:
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        if _is_same(old, new) or (id(old), id(new)) in compared:
            continue
        path, old_parts, new_parts = place(key), parts_of(old), parts_of(new)
        if old_parts and new_parts and type(old) is type(new) and old_parts[0].keys() == new_parts[0].keys():
            compared.add((id(old), id(new)))
            yield from _differences(old_parts[0], new_parts[0], _Suffixed(path, new_parts[1]), owner, compared)
        else:
            yield Assignment(path, owner, old, new)


def _is_same(old: object, new: object) -> bool:
    return old is new or (type(old) is type(new) and isinstance(old, _VALUES) and old == new)


_VALUES: Final = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""The types of values that are the same if they are equal."""


@dataclass(frozen=True, slots=True)
class _Suffixed:
    path: str
    suffix: Callable[[object], str]

    def __call__(self, key: object) -> str:
        return self.path + self.suffix(key)


# ---- what is written -------------------------------------------------------------------------------


def _fits(assignment: Assignment) -> bool:
    """Whether a tensor can be written into another, where it was assigned in its place."""
    old, new = assignment.before, assignment.after
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor) or old.requires_grad:
        return False
    return has_form_of(old, new)


def has_form_of(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether both have one dtype, device and shape; a size that varies is none."""
    forms = [(tensor.dtype, tensor.device, *tensor.shape) for tensor in (old, new)]
    return all(isinstance(size, int) for size in (*old.shape, *new.shape)) and forms[0] == forms[1]


def _write(assigned: Sequence[Assignment]) -> None:
    """Write each new tensor into the old one, all as they are now, though one may be another's old one."""
    pairs = [(cast("torch.Tensor", each.before), cast("torch.Tensor", each.after).detach()) for each in assigned]
    written = {StorageWeakRef(old.untyped_storage()) for old, _ in pairs}
    news = [new.clone() if StorageWeakRef(new.untyped_storage()) in written else new for _, new in pairs]
    for (old, _), new in zip(pairs, news, strict=True):
        old.copy_(new)
