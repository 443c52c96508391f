"""A call -> the dtypes of its results, which torch is asked for once per operator and dtypes of its arguments.

    mul.Tensor(bool[3], int64[])       int64     a tensor without dims promotes as a number does
    eq.Scalar(float32[3], 1)           bool
    max.dim(int8[2, 3], 0)             int8, int64

Sizes do not matter, nor does what a number is; flags, strings and dtypes among the arguments do.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, TypeAlias

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot.graph.fake_values import Args, Kwargs, fake_values
from delegraph.aot.graph.view_operators import COPY_TO_VIEW

__all__ = ["Dtypes", "dtypes_of", "names_of", "result_dtypes", "untraced"]

Dtypes: TypeAlias = tuple[torch.dtype, ...]

_KINDS: Final[dict[type, Hashable]] = {
    **{kind: kind for kind in (int, float, complex)},
    **{torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool},
}
"""Numbers that decide by their kind."""

_known: Final[dict[Hashable, Dtypes | None]] = {}


def result_dtypes(op: OpOverload, args: Args, kwargs: Kwargs) -> Dtypes | None:
    """The dtypes of the tensors that `op` gives, flat; None if torch cannot tell without running it.

    `args` and `kwargs` hold nodes with fake values, or the fake values themselves.
    """
    named = tuple([(name, _decisive(value)) for name, value in kwargs.items()]) if kwargs else ()
    key = (op, tuple([_decisive(value) for value in args]), named)
    try:
        return _known[key]
    except KeyError:
        dtypes = _asked(op, *fake_values((args, dict(kwargs))))
        return _known.setdefault(key, dtypes)


def dtypes_of(value: object) -> Dtypes:
    """The dtypes of the tensors in `value`, flat."""
    if isinstance(value, torch.Tensor):
        return (value.dtype,)
    return tuple(leaf.dtype for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def names_of(dtypes: Dtypes) -> str:
    """The dtypes as an error names them: "int64, bool"."""
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _decisive(value: object) -> Hashable:
    """The part of an argument that decides on dtypes."""
    if isinstance(value, Node):
        value = value.meta["val"]
    if isinstance(value, torch.Tensor):
        return value.dtype, not value.shape
    if isinstance(value, (list, tuple)):
        return frozenset([_decisive(each) for each in value])
    decisive: Hashable = _KINDS.get(type(value), value)
    return decisive


def _asked(op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> Dtypes | None:
    with untraced(_mode_of((args, kwargs))):
        try:
            return dtypes_of(COPY_TO_VIEW.get(op, op)(*args, **kwargs))
        except Exception:  # whatever a fake implementation raises that needs the values, or another mode
            return None


def _mode_of(arguments: object) -> FakeTensorMode:
    for leaf in pytree.tree_leaves(arguments):
        if isinstance(leaf, FakeTensor):
            return leaf.fake_mode
    return FakeTensorMode()


@contextmanager
def untraced(mode: FakeTensorMode) -> Iterator[None]:
    """`mode`, in which calls of operators leave nothing: its symbols neither learn from them nor become more, and torch
    logs no stack of one that fails, which is an answer."""
    logger = logging.getLogger(FakeTensor.__module__)
    before, logger.disabled = logger.disabled, True
    try:
        with ExitStack() as stack:
            stack.enter_context(mode)
            if mode.shape_env is not None:
                stack.enter_context(mode.shape_env.suppress_guards())
                stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
            yield
    finally:
        logger.disabled = before
