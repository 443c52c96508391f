"""An operator of torch + a program's values -> the call: bound once over fixed memory, or made for each execution."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault, restated
from delegraph.interfaces import BoundCall, KernelContext
from delegraph_aten.operators import TorchOperator
from delegraph_aten.values import Array, torch_dtype, written_tensor

Outs: TypeAlias = "Sequence[Array | Sequence[Array]]"

if hasattr(os, "register_at_fork"):
    # A child that a fork makes has none of torch's threads, and would wait for them.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))

_MOST_SHAPES: Final = 1024
"""How many shapes of an operator are remembered before they are forgotten."""

_REFUSALS: Final = (ArithmeticError, LookupError, RuntimeError, RuntimeFault, TypeError, ValueError)
"""Torch's exceptions for arguments that it does not take; those of the context are faults already."""


def bind(operator: TorchOperator, context: KernelContext, *args: Any) -> BoundCall:
    """The call of `operator` on arrays that keep their memory and shape."""
    try:
        with torch.inference_mode(False):  # tensors made inside of it could not be written to outside
            call = _bound(operator, context, args)
    except _REFUSALS as error:
        raise _fault(operator, error) from error

    def run() -> None:
        try:
            call()
        except _REFUSALS as error:
            raise _fault(operator, error) from error

    return run


def run(operator: TorchOperator, context: KernelContext, *args: Any) -> Any:
    """Call `operator` on the arrays that stand for its arguments now; returns its result if that is a scalar."""
    try:
        return _executed(operator, context, args)
    except _REFUSALS as error:
        raise _fault(operator, error) from error


# ---- fixed memory ----------------------------------------------------------------------------------


def _bound(operator: TorchOperator, context: KernelContext, args: Sequence[Any]) -> BoundCall:
    inputs, outs = _split(operator, args)
    shown = _shown(operator, inputs)
    if shown is not None:
        pairs = _pairs(outs, _by_out(outs, shown))
        copies = [partial(_target(context, out, view).copy_, view) for out, view in pairs]
        return copies[0] if len(copies) == 1 else lambda: [copy() for copy in copies]
    compute = _computed(operator, inputs, operator.into is None or _lacks_outs(outs))
    if compute is not None:
        return lambda: _store(context, outs, _by_out(outs, compute()))
    assert operator.into is not None
    out_tensors = _map(written_tensor, outs)
    call = _prepared(operator.into, operator, inputs, out_tensors)
    return _checked_once(context, call, outs, out_tensors) if outs else call


def _checked_once(context: KernelContext, call: BoundCall, outs: Outs, out_tensors: Sequence[Any]) -> BoundCall:
    """`call`; after its first run the outs must have kept their shapes: they do so in every run, or in none."""
    unchecked = list(_pairs(outs, out_tensors))

    def run() -> None:
        call()
        if unchecked:
            for out, written in unchecked:
                context.resize(out, tuple(written.shape))
            unchecked.clear()

    return run


# ---- memory that varies ----------------------------------------------------------------------------


def _executed(operator: TorchOperator, context: KernelContext, args: Sequence[Any]) -> Any:
    inputs, outs = _split(operator, args)
    if not outs:
        assert operator.into is not None
        return _prepared(operator.into, operator, inputs)()
    results = _shown(operator, inputs)
    if results is None and (compute := _computed(operator, inputs, True)) is not None:
        results = compute()
    if results is not None:
        return _store(context, outs, _by_out(outs, results))
    return _write(operator, context, args, inputs, outs)


def _write(
    operator: TorchOperator, context: KernelContext, args: Sequence[Any], inputs: Sequence[Any], outs: Outs
) -> None:
    """Let torch write into the outs. Where their new shape is not known yet, it gets fresh ones, which are copied."""
    assert operator.into is not None
    key = _key(args) if operator.shape_is_known else None
    shapes = operator.shapes.get(key) if key is not None else None
    if shapes is not None:
        outs = [_resized(context, out, shape) for out, shape in zip(outs, shapes, strict=True)]
        out_tensors = _map(written_tensor, outs)
        _prepared(operator.into, operator, inputs, out_tensors)()
        return
    out_tensors = _map(lambda out: torch.empty(0, dtype=torch_dtype(out), device="cpu"), outs)
    _prepared(operator.into, operator, inputs, out_tensors)()
    _store(context, outs, out_tensors)
    if key is not None:
        if len(operator.shapes) >= _MOST_SHAPES:
            operator.shapes.clear()
        operator.shapes[key] = _map(lambda result: tuple(result.shape), out_tensors)


def _key(values: Sequence[Any]) -> tuple[Any, ...]:
    """The key that determines the shapes of results: the shapes and dtypes of arrays, and all other values."""
    return tuple(
        (value.shape, value.dtype)
        if isinstance(value, np.ndarray)
        else _key(value)
        if isinstance(value, list)
        else value
        for value in values
    )


def _resized(context: KernelContext, out: Any, shape: Any) -> Any:
    if isinstance(out, np.ndarray):
        return context.resize(out, shape)
    return [context.resize(item, size) for item, size in zip(out, shape, strict=True)]


# ---- arguments and results ---------------------------------------------------------------------------


def _split(operator: TorchOperator, args: Sequence[Any]) -> tuple[list[Any], Outs]:
    """The inputs as torch wants them, and the outs as they are."""
    count = len(operator.inputs)
    if len(args) != count + len(operator.outs):
        raise InvalidArgument(f"it takes {count} arguments and {len(operator.outs)} outs, the program has {len(args)}")
    pairs = zip(operator.inputs, args[:count], strict=True)
    inputs = [value if parameter.convert is None else parameter.convert(value) for parameter, value in pairs]
    return inputs, args[count:]


def _prepared(
    function: Callable[..., Any], operator: TorchOperator, inputs: Sequence[Any], outs: Sequence[Any] = ()
) -> Callable[[], Any]:
    """`function` with its arguments, to be called without any."""
    pairs = list(zip(operator.inputs, inputs, strict=True))
    positional = [value for parameter, value in pairs if not parameter.keyword]
    keywords = {parameter.name: value for parameter, value in pairs if parameter.keyword}
    keywords |= dict(zip(operator.outs, outs, strict=False))  # a functional operator gets none
    return partial(function, *positional, **keywords)


def _shown(operator: TorchOperator, inputs: Sequence[Any]) -> Any:
    """The view that the operator copies; None if it copies none, or memory in this order has no such view."""
    if operator.view is None:
        return None
    try:
        return _prepared(operator.view, operator, inputs)()
    except RuntimeError:
        return None


def _computed(operator: TorchOperator, inputs: Sequence[Any], functional: bool) -> Callable[[], Any] | None:
    """The call that returns new tensors: of the substitute in its dtypes, else, if `functional`, of that operator."""
    substitute = operator.substitute
    if substitute is not None and inputs[0].dtype in substitute.dtypes:
        return _prepared(substitute.function, operator, inputs)
    if not functional or operator.functional is None:
        return None
    return _prepared(operator.functional, operator, inputs)


def _lacks_outs(outs: Outs) -> bool:
    """Whether a result is not wanted: in its place stands a tensor without bytes, which torch would not write to."""
    return any(_is_absent(out) for out in outs)


def _is_absent(out: Array | Sequence[Array]) -> bool:
    return isinstance(out, np.ndarray) and out.shape == (0,) and out.dtype == np.uint8


def _store(context: KernelContext, outs: Outs, results: Any) -> None:
    """Copy an operator's results to its outs."""
    for out, result in _pairs(outs, results):
        _target(context, out, result).copy_(result)


def _target(context: KernelContext, out: Array, result: torch.Tensor) -> torch.Tensor:
    """`out` at the shape of `result`. Raises `InvalidType` if it is not of its dtype."""
    if torch_dtype(out) != result.dtype:
        raise InvalidType(f"out is {torch_dtype(out)}, where the result is {result.dtype}")
    return written_tensor(context.resize(out, tuple(result.shape)))


def _pairs(outs: Outs, results: Sequence[Any]) -> Iterator[tuple[Array, torch.Tensor]]:
    """Each out array with its result, lists flattened; without results that are not asked for."""
    for out, result in zip(outs, results, strict=True):
        if not isinstance(out, np.ndarray):
            yield from zip(out, result, strict=True)
        elif result is not None and not (_is_absent(out) and result.dtype != torch.uint8):
            yield out, result


def _by_out(outs: Outs, results: Any) -> Sequence[Any]:
    """The results of a functional operator, a sequence with a result for each out."""
    return [results] if len(outs) == 1 else results


def _map(function: Callable[[Any], Any], outs: Sequence[Any]) -> list[Any]:
    return [[function(item) for item in out] if isinstance(out, list | tuple) else function(out) for out in outs]


def _fault(operator: TorchOperator, error: Exception) -> RuntimeFault:
    """The fault that `error` is, with the operator's name before the message."""
    if isinstance(error, RuntimeFault):
        return restated(error, f"{operator.name}: {error}")
    kind = InvalidType if isinstance(error, TypeError | NotImplementedError) else InvalidArgument
    message = next(filter(None, str(error).splitlines()), type(error).__name__)
    return kind(f"{operator.name}: {message}")
