"""Partitions -> those that are another one at some sizes: a step of one token, and a prompt of any length.

    prefill   %tokens [1, s]   %n = sym_size(%tokens, 1)   view(%q, [1, %n, 10, 64])   scalar_tensor(%n)
    decode    %tokens [1, 1]                               view(%q, [1, 1, 10, 64])    %constant = tensor(1)

With s = 1 the first is the second, so its blob computes both: a backend that says so (`serves_fixed_sizes`) compiles
the first alone, the file has its blob once, and a runtime half that knows memory again packs its weights once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot.delegation.lowered_module import LoweredBackendModule
from delegraph.aot.functional.functionalize import fake_mode_of
from delegraph.aot.graph.debug_handles import DEBUG_HANDLE
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.provenance import OPERAND
from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature
from delegraph.aot.graph.stored_tensor import have_same_bytes, memory_of, storage_bytes
from delegraph.aot.torch_internals import ValueRanges
from delegraph.interfaces.lowering import PreprocessResult

__all__ = ["Instance", "instances_of"]


@dataclass(frozen=True, slots=True)
class Instance:
    """A partition whose blob is another one's: that of `general`. `handles` are the debug handles of its calls, by
    those of `general`'s."""

    general: LoweredBackendModule
    handles: Mapping[int, int]

    def result(self, of_general: PreprocessResult) -> PreprocessResult:
        """The result of `general`, for this partition: the same blobs, with its own debug handles."""
        handles: dict[Any, tuple[int, ...]] = {
            name: tuple(self.handles[handle] for handle in sources if handle in self.handles)
            for name, sources in (of_general.debug_handle_map or {}).items()
        }
        return replace(of_general, debug_handle_map=handles)


def instances_of(
    modules: Mapping[str, Sequence[LoweredBackendModule]], may_be: Callable[[LoweredBackendModule], bool]
) -> dict[LoweredBackendModule, Instance]:
    """The partitions of one backend, by method, that are another one of them, and `may_be`; that one is none itself.

    Those with the most free sizes are looked at first, so that what all others are stays.
    """
    every = [module for group in modules.values() for module in group]
    served = {module for module in every if may_be(module)} if len(every) > 1 else set()
    if not served:
        return {}
    waiting = [(module, _Form.of(module.original_module)) for module in every]
    waiting.sort(key=lambda entry: -len(entry[1].symbols))
    general: dict[object, list[tuple[LoweredBackendModule, _Form]]] = {}
    instances: dict[LoweredBackendModule, Instance] = {}
    for module, form in waiting:
        alike = general.setdefault(form.weights_key(), [])
        instance = next(_generals(module, form, alike), None) if module in served else None
        if instance is None:
            alike.append((module, form))
        else:
            instances[module] = instance
    return instances


def _generals(
    module: LoweredBackendModule, form: _Form, general: Sequence[tuple[LoweredBackendModule, _Form]]
) -> Iterator[Instance]:
    for other, other_form in general:
        if (other.compile_specs, other.has_fallback) == (module.compile_specs, module.has_fallback):
            pairs = _pairs(other_form, form)
            if pairs is not None:
                yield Instance(other, _handles(pairs))


def _handles(pairs: Mapping[Node, Node]) -> dict[int, int]:
    both = ((general.meta.get(DEBUG_HANDLE), other.meta.get(DEBUG_HANDLE)) for general, other in pairs.items())
    return {handle: own for handle, own in both if isinstance(handle, int) and isinstance(own, int)}


# ---- two programs ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """A partition's program, for comparison."""

    program: ExportedProgram
    signature: ResolvedSignature
    symbols: frozenset[sympy.Symbol]
    """Those of the sizes of its inputs."""

    @classmethod
    def of(cls, program: ExportedProgram) -> _Form:
        signature = ResolvedSignature.of(program)
        sizes = (size for node in signature.inputs for size in _sizes(node.meta.get("val")))
        return cls(program, signature, frozenset(symbol for size in sizes for symbol in size.free_symbols))

    @property
    def new_states(self) -> dict[str, Node]:
        """The values that its states get, by their names."""
        states = self.signature.states
        return {states[back.target].name: back.source for back in self.signature.write_backs if back.target in states}

    @property
    def is_plain(self) -> bool:
        """Whether it computes from tensors, trains nothing, and writes to nothing but its states."""
        signature = self.signature
        return not signature.others and not signature.trained and len(self.new_states) == len(signature.write_backs)

    def weights_key(self) -> object:
        """Equal for programs of equal weights, and hardly for others: hundreds of partitions of one form are told apart
        by their weights without a comparison of each two. Numbers do not count."""
        every = (*self.signature.constants.values(), *self.signature.states.values())
        weights = (stored.tensor for stored in every if stored.tensor.numel() >= _NO_NUMBER)
        return tuple(sorted((str(weight.dtype), str(tuple(weight.shape)), _beginning(weight)) for weight in weights))

    def limits(self, symbol: sympy.Symbol) -> ValueRanges[Any]:
        mode = fake_mode_of(self.program)
        env = None if mode is None else mode.shape_env
        known = {} if env is None else env.var_to_range
        return self.program.range_constraints.get(symbol) or known.get(symbol) or ValueRanges.unknown_int()


_NO_NUMBER: Final = 16


def _beginning(tensor: torch.Tensor) -> bytes:
    """The first bytes of a tensor's memory; none of one without data."""
    if memory_of(tensor) is None or tensor.device.type != "cpu":
        return b""
    start = tensor.storage_offset() * tensor.element_size()
    return storage_bytes(tensor)[start : start + 64].numpy().tobytes()


def _pairs(general: _Form, other: _Form) -> dict[Node, Node] | None:
    """The nodes of `general`, each with that of `other` which it is at the sizes of `other`'s inputs; None where
    some result of `other` is another one, or a size is one that `general` does not take."""
    own, others = general.signature, other.signature
    if not (general.is_plain and other.is_plain) or len(own.inputs) != len(others.inputs):
        return None
    sizes = _sizes_taken(general, other)
    if sizes is None:
        return None
    comparison, pairs = _Comparison(general, other, sizes), dict[Node, Node]()
    waiting = comparison.leaves((own.outputs, general.new_states), (others.outputs, other.new_states))
    while waiting:
        first, second = waiting.pop()
        first = comparison.without_views(first, second)
        if first not in pairs:
            more = comparison.operands(first, second)
            if more is None:
                return None
            pairs[first] = second
            waiting += more
        elif pairs[first] is not second:
            return None
    calls = [second for second in pairs.values() if second.op == "call_function"]
    return pairs if waiting is not None and len({*calls}) == len(calls) else None


def _sizes_taken(general: _Form, other: _Form) -> dict[sympy.Symbol, sympy.Expr] | None:
    """The sizes in `other` of `general`'s symbols; None where `general` does not take these."""
    sizes: dict[sympy.Symbol, sympy.Expr] = {}
    for first, second in zip(general.signature.inputs, other.signature.inputs, strict=True):
        pairs = zip(_sizes(first.meta.get("val")), _sizes(second.meta.get("val")), strict=False)
        if any(size.is_Symbol and sizes.setdefault(size, own) != own for size, own in pairs):
            return None
    return sizes if all(_takes(general, symbol, other, size) for symbol, size in sizes.items()) else None


def _takes(general: _Form, symbol: sympy.Symbol, other: _Form, size: sympy.Expr) -> bool:
    """torch counts free sizes from 2 on, and a program that it exports so takes 1 as well."""
    limits = general.limits(symbol)
    if size.is_Symbol:
        own = other.limits(size)
        return bool(limits.lower <= own.lower and own.upper <= limits.upper)
    return bool(size.is_Integer and size >= 1 and max(size, 2) >= limits.lower and size <= limits.upper)


@dataclass(slots=True)
class _Comparison:
    """`general`, with `sizes` for its symbols, beside `other`."""

    general: _Form
    other: _Form
    sizes: Mapping[sympy.Symbol, sympy.Expr]

    def without_views(self, first: Node, second: Node) -> Node:
        """The source of `first`, if `first` is a view of all of it at these sizes: torch drops such a view then.

        prefill   %last = slice_copy(%x [1, s, 64], 1, -1)      decode   %x [1, 1, 64]
        """
        while first.target != second.target and operator_name(first) in _VIEWS:
            source = first.args[0]
            assert isinstance(source, Node)
            if not self._same_shape(first, source):
                break
            first = source
        return first

    def _same_shape(self, first: Node, second: Node) -> bool:
        return self._at_sizes(first.meta.get("val")) == self._at_sizes(second.meta.get("val"))

    def operands(self, first: Node, second: Node) -> Leaves | None:
        """The pairs that have to be alike for these two to be; None where they are not."""
        if first.op == "call_function" and second.op == "placeholder":
            return [] if self._is_number(first, second) else None
        if first.op != second.op or not self._same_type(first.meta.get("val"), second.meta.get("val")):
            return None
        if first.op == "placeholder":
            return [] if self._same_source(first, second) else None
        if first.op != "call_function" or first.target != second.target:
            return None
        return self.leaves((first.args, first.kwargs), (second.args, second.kwargs))

    def leaves(self, first: object, second: object) -> Leaves | None:
        """The nodes in two structures that are alike but for these."""
        own, spec = pytree.tree_flatten(first)
        others, other_spec = pytree.tree_flatten(second)
        if spec != other_spec:
            return None
        pairs = list(zip(own, others, strict=True))
        both = [(a, b) for a, b in pairs if isinstance(a, Node) and isinstance(b, Node)]
        plain = ((a, b) for a, b in pairs if not (isinstance(a, Node) and isinstance(b, Node)))
        return both if all(self._same_plain(a, b) for a, b in plain) else None

    def _same_plain(self, first: object, second: object) -> bool:
        if isinstance(first, Node) and isinstance(second, int):  # a size that `other` has as a number
            value = first.meta.get("val")
            return isinstance(value, torch.SymInt) and self._at_sizes(value) == [second]
        return type(first) is type(second) and first == second

    def _at_sizes(self, value: object) -> list[sympy.Expr]:
        return [size.xreplace(self.sizes) for size in _sizes(value)]

    def _same_type(self, first: object, second: object) -> bool:
        """Whether two fake values are alike: tensors of one dtype and shape, or numbers."""
        own, spec = pytree.tree_flatten(first)
        others, other_spec = pytree.tree_flatten(second)
        return spec == other_spec and all(
            type(a) is type(b)
            and getattr(a, "dtype", None) == getattr(b, "dtype", None)
            and self._at_sizes(a) == _sizes(b)
            for a, b in zip(own, others, strict=True)
        )

    def _same_source(self, first: Node, second: Node) -> bool:
        general, other = self.general.signature, self.other.signature
        if first in general.inputs:
            is_same = second in other.inputs and general.inputs.index(first) == other.inputs.index(second)
            return is_same and self._same_strides(first.meta["val"], second.meta["val"])
        if first in general.states:
            return second in other.states and _same_held(general.states[first], other.states[second], named=True)
        named = external_tag(first) is not None or external_tag(second) is not None
        return (
            (first in general.constants and second in other.constants)
            and (external_tag(first), first.meta.get(OPERAND)) == (external_tag(second), second.meta.get(OPERAND))
            and _same_held(general.constants[first], other.constants[second], named)
        )

    def _same_strides(self, first: object, second: object) -> bool:
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            return True
        strides = zip(first.stride(), second.stride(), second.shape, strict=True)
        return all(self._at_sizes(own) == [_expr(other)] for own, other, size in strides if _expr(size) != 1)

    def _is_number(self, first: Node, second: Node) -> bool:
        """Whether `first` makes a tensor of a size, which `other` has as a constant."""
        stored = self.other.signature.constants.get(second)
        if stored is None or operator_name(first) != "aten::scalar_tensor" or stored.tensor.ndim:
            return False
        (number,) = first.args
        value = number.meta.get("val") if isinstance(number, Node) else number
        same_dtype = first.meta["val"].dtype == stored.tensor.dtype
        (size,) = self._at_sizes(value)
        return same_dtype and bool(size.is_Integer) and int(size) == stored.tensor.item()


_VIEWS: Final = frozenset({"aten::slice_copy.Tensor", "aten::expand_copy", "aten::view_copy"})
"""Operators that give what they are given where the shape stays."""

Leaves: TypeAlias = "list[tuple[Node, Node]]"


def _same_held(first: HeldTensor, second: HeldTensor, named: bool) -> bool:
    return (not named or first.name == second.name) and have_same_bytes(first.tensor, second.tensor)


def _sizes(value: object) -> list[sympy.Expr]:
    """The sizes of a tensor, or the number that it is."""
    if isinstance(value, torch.Tensor):
        return [_expr(size) for size in value.shape]
    return [_expr(value)] if isinstance(value, (int, float, *_SYMBOLIC)) else []


def _expr(number: Any) -> sympy.Expr:
    if isinstance(number, _SYMBOLIC):
        return number.node.expr
    return sympy.Float(number) if isinstance(number, float) else sympy.Integer(number)


_SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
