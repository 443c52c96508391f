"""A sample of torch's operator database -> the ATen calls that it comes down to, each with what torch gives for it.

A sample is run on real tensors under a dispatch mode that does what lowering does to a program: composite operators
are decomposed with lowering's own table, in-place calls become functional ones, and what is left is rewritten to the
edge dialect by lowering's own rewrites. A composite operator that has a kernel, or that a backend keeps whole, is
recorded as well, before it is decomposed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from tests.kernels.libraries import LIBRARY_OF
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from delegraph.aot.edge.to_edge_dialect import ASSERTIONS, REWRITES
from delegraph.aot.functional.decompose import core_aten_table, is_composite
from delegraph.aot.graph.out_variants import find_out_variant, gives_scalar, operator_of
from delegraph.program.prim_op_names import BUILT_IN

__all__ = ["Call", "Recording", "name_of", "out_overload", "record"]

aten = torch.ops.aten

_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the kernel `op`, or of an operator that is kept whole. `function` is the functional operator, `result`
    what it gives for the arguments, which are copies with the strides that they had at the call."""

    op: str
    function: OpOverload
    args: Any
    kwargs: dict[str, Any]
    result: Any

    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments, then those of the result."""
        return _tensors((self.args, self.kwargs, self.result))

    def on(self, dtype: torch.dtype) -> Call:
        """The same call with tensors of `dtype` in place of those that have the dtype of the first one.

        Raises what torch raises where its operator does not take them.
        """
        tensors = self.tensors()
        if not tensors:
            raise TypeError("a call without tensors")
        first = tensors[0].dtype

        def cast(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.dtype == first:
                return value.to(dtype)
            return dtype if value == first and isinstance(value, torch.dtype) else value

        args, kwargs = pytree.tree_map(cast, (self.args, self.kwargs))
        if not _tensors((args, kwargs)):  # a factory
            kwargs = {**kwargs, "dtype": dtype}
        result = self.function(*_snapshot(args), **_snapshot(kwargs))
        return Call(self.op, self.function, args, kwargs, None if self.result is None else _snapshot(result))


@dataclass(slots=True)
class Recording:
    """What one sample came down to: `missing` are the operators that lowering leaves and that have no kernel; `refusal`
    says why torch itself did not run the sample to its end."""

    calls: list[Call] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    refusal: str = ""


def record(run: Callable[[], object], whole: frozenset[OpOverload] = frozenset()) -> Recording:
    """Record what `run` calls, and of composites those of `whole`. An exception of torch's ends the recording and is
    its `refusal`."""
    recorder = _Recorder(_names_by_function(whole))
    with warnings.catch_warnings(action="ignore"), torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        try:
            with enable_python_dispatcher(), recorder, _kept_whole(recorder, _implicit_composites(whole)):
                run()
        except Exception as refusal:  # whatever torch raises on a sample is its answer
            recorder.recording.refusal = f"{_plainly(run)}{type(refusal).__name__}: {refusal}"
    return recorder.recording


def _plainly(run: Callable[[], object]) -> str:
    """Whether torch runs the sample when it is not decomposed, in words."""
    try:
        run()
    except Exception:
        return ""
    return "decomposed as lowering does it, "


class _Recorder(TorchDispatchMode):
    """Fills `recording`. `names` has the functions whose calls are recorded, composites among them."""

    def __init__(self, names: Mapping[OpOverload, str]) -> None:
        super().__init__()
        self.names = names
        self.recording = Recording()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        twin = _functional_twin(function)
        if twin is not None:
            return self._in_place(function, twin, args, kwargs)
        name = self.names.get(function)
        composite = is_composite(function)
        if composite and name is None:
            return self._decomposed(function, args, kwargs)
        args_before, kwargs_before = _snapshot((args, kwargs))
        result = function(*args, **kwargs)
        after = _snapshot(result)
        if name is not None and not _number_for_a_tensor(function, args):
            self._add(name, function, args_before, kwargs_before, after)
        if composite:
            self._decomposed(function, _snapshot(args_before), _snapshot(kwargs_before))
        else:
            self._left_by_lowering(function, args_before, kwargs_before, after)
        return result

    def whole(self, function: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """A composite operator that is recorded, met before the dispatcher decomposed it: recorded, then decomposed."""
        with _disable_current_modes():
            args_before, kwargs_before = _snapshot((args, kwargs))
            result = _snapshot(function._op_dk(_IMPLICIT, *args, **kwargs))
        if not _number_for_a_tensor(function, args):
            self._add(self.names[function], function, args_before, kwargs_before, result)
        return function._op_dk(_IMPLICIT, *args, **kwargs)

    def _in_place(self, function: OpOverload, twin: OpOverload, args: Any, kwargs: Any) -> Any:
        """The functional call, whose result is written into the target."""
        if str(operator_of(function)) in LIBRARY_OF:
            self._add(str(operator_of(function)), function, _snapshot(args), _snapshot(kwargs), None)
        with self:
            value = _set_value(*args[:2]) if function is aten.copy_.default else twin(*args, **kwargs)
        if twin.is_view or value.shape != args[0].shape:  # it changes what the tensor is, not what it holds
            return function(*args, **kwargs)
        return args[0].copy_(value)

    def _decomposed(self, function: OpOverload, args: Any, kwargs: Any) -> Any:
        rule = core_aten_table().get(function, function.decompose)
        with self:
            result = rule(*args, **kwargs)
        if result is not NotImplemented:
            return result
        result = function(*args, **kwargs)
        self._left_by_lowering(function, args, kwargs, result)
        return result

    def _left_by_lowering(self, function: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        if function in ASSERTIONS or _is_metadata(function):
            return
        if function._schema.is_mutable and function._schema.name.endswith("_"):
            self.recording.missing.add(f"{operator_of(function)} (in place, without a functional twin of its overload)")
            return
        if function._schema.is_mutable:
            self.recording.missing.add(f"{operator_of(function)} (changes its arguments and has no functional form)")
            return
        edge, args, kwargs = _edge_form(function, args, kwargs, result)
        if gives_scalar(edge):
            if str(operator_of(edge)) not in BUILT_IN:
                self.recording.missing.add(str(operator_of(edge)))
            return
        variant = find_out_variant(edge)
        name = f"{operator_of(edge)} (which has no out variant)" if variant is None else str(variant.operator)
        if name not in LIBRARY_OF:
            self.recording.missing.add(name)
        elif not self.recording.calls or self.recording.calls[-1].op != name:  # else: just added
            self._add(name, edge, args, kwargs, result)

    def _add(self, op: str, function: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
        self.recording.calls.append(Call(op, function, args, kwargs, result))


@contextmanager
def _kept_whole(recorder: _Recorder, operators: list[OpOverload]) -> Iterator[None]:
    """Let `recorder` see `operators`, which torch decomposes before a mode could see them."""
    before = {function: dict(function.py_kernels) for function in operators}
    for function in operators:
        function.py_kernels[_IMPLICIT] = partial(recorder.whole, function)
        function._dispatch_cache.clear()
    try:
        yield
    finally:
        for function in operators:
            function.py_kernels.clear()
            function.py_kernels.update(before[function])
            function._dispatch_cache.clear()


@cache
def _implicit_composites(whole: frozenset[OpOverload]) -> list[OpOverload]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [f for f in _names_by_function(whole) if has(f.name(), "CompositeImplicitAutograd")]


def _functional_twin(function: OpOverload) -> OpOverload | None:
    """`add.Tensor` for `add_.Tensor`; None for what is not in place."""
    name = function._schema.name.rpartition("::")[2]
    if not function._schema.is_mutable or not name.endswith("_") or name.startswith("__"):
        return None
    packet = getattr(getattr(torch.ops, function.namespace), name.removesuffix("_"), None)
    return getattr(packet, function._overloadname, None)


def _set_value(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """What `target.copy_(source)` leaves in `target`, as lowering writes it."""
    if source.dtype != target.dtype:
        source = aten._to_copy.default(source, dtype=target.dtype)
    return source if source.shape == target.shape else aten.expand.default(source, list(target.shape))


def _is_metadata(function: OpOverload) -> bool:
    """Whether the call asks for a size or stride: a program holds them as numbers."""
    return function.namespace == "prim" or function._schema.name.startswith("aten::sym_")


def _number_for_a_tensor(function: OpOverload, args: Any) -> bool:
    declared = zip(function._schema.arguments, args, strict=False)
    return any(str(a.type) == "Tensor" and isinstance(v, bool | int | float | complex) for a, v in declared)


# ---- the edge dialect ------------------------------------------------------------------------------


def _edge_form(function: OpOverload, args: Any, kwargs: Any, result: Any) -> tuple[OpOverload, Any, dict[str, Any]]:
    """The call as lowering rewrites it to the edge dialect."""
    rewrite = REWRITES.get(function)
    if rewrite is not None:
        graph = Graph()

        def placeholder(tensor: torch.Tensor) -> Node:
            node = graph.placeholder("tensor")
            node.meta["val"] = tensor
            return node

        call_args, call_kwargs = pytree.tree_map_only(torch.Tensor, placeholder, (tuple(args), kwargs))
        call = graph.call_function(function, call_args, call_kwargs)
        call.meta["val"] = result
        rewrite(call)
        function = call.target  # type: ignore[assignment]
        args, kwargs = pytree.tree_map_only(Node, lambda node: node.meta["val"], (call.args, dict(call.kwargs)))
    return function, _with_tensors(function, args), kwargs


def _with_tensors(function: OpOverload, args: Any) -> tuple[Any, ...]:
    """The arguments with numbers that stand where the schema has a tensor made into 0-d tensors."""
    if not _number_for_a_tensor(function, args):
        return tuple(args)
    first = next((value for value in args if isinstance(value, torch.Tensor)), None)

    def constant(value: Any) -> torch.Tensor:
        return torch.tensor(value, dtype=None if first is None else torch.result_type(first, value))

    declared = zip(function._schema.arguments, args, strict=False)
    return tuple(
        constant(value) if str(a.type) == "Tensor" and not isinstance(value, torch.Tensor) else value
        for a, value in declared
    )


# ---- operators by kernel ---------------------------------------------------------------------------


def out_overload(op: str) -> OpOverload:
    """The overload that a kernel is named after."""
    namespace, _, name = op.partition("::")
    base, _, overload = name.partition(".")
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    return found


@cache
def _names_by_function(whole: frozenset[OpOverload]) -> dict[OpOverload, str]:
    """Functional overload -> the kernel that its calls are recorded as; of those of `whole` without one, their own."""
    return {function: function.name() for function in whole} | _kernels_by_function()


def name_of(function: OpOverload) -> str:
    """What calls of `function` are recorded as: the kernel that runs it, or its own name if there is none."""
    kernel = _kernels_by_function().get(function)
    if kernel is not None:
        return kernel
    variant = find_out_variant(function)
    return function.name() if variant is None or str(variant.operator) not in LIBRARY_OF else str(variant.operator)


@cache
def _kernels_by_function() -> dict[OpOverload, str]:
    """Functional overload -> the kernel of its out overload. A view stands for the kernel that copies it."""
    table = {}
    for op in LIBRARY_OF:
        if not op.startswith("aten::"):
            continue
        out = out_overload(op)
        names = {argument.name for argument in out._schema.arguments if not argument.is_out}
        base = out._schema.name.removeprefix("aten::")
        for packet in {base, base.removesuffix("_copy")}:
            for function in _functional_overloads(packet):
                if _arguments(function, names) == _arguments(out, names):
                    table[function] = op
    return table


_CREATION_OPTIONS = {"dtype", "layout", "device", "pin_memory"}


def _functional_overloads(packet: str) -> Iterator[OpOverload]:
    found = getattr(aten, packet, None)
    for overload in found.overloads() if found else ():
        if not any(a.is_out for a in getattr(found, overload)._schema.arguments):
            yield getattr(found, overload)


def _arguments(function: OpOverload, names: set[str]) -> list[tuple[str, str]]:
    """Names and types of the inputs, without creation options that `names` does not have."""
    kept = (a for a in function._schema.arguments if not a.is_out)
    return [(a.name, str(a.type)) for a in kept if a.name in names or a.name not in _CREATION_OPTIONS]


# ---- tensors ---------------------------------------------------------------------------------------


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _snapshot(tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, _copy_with_strides, tree)


def _copy_with_strides(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided or torch._debug_has_internal_overlap(tensor) or tensor.numel() == 0:
        return tensor.detach().clone()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor.detach())
