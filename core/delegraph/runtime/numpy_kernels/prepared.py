"""A prepared function -> a kernel of a library.

Most kernels in NumPy are *prepared*: a function of the call's arguments that looks at shapes and dtypes only, resizes
`out`, and returns the call that computes. The runtime binds that call at load where shapes are fixed, and prepares it
anew for each execution where they are not; either way there is one definition. Constants (weights)
may be repacked while preparing: `when_constant`.

Kernels run under `np.errstate(all="ignore")`, which whoever runs them enters once: as in torch, a division by zero
gives inf and an overflow wraps around, without a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np

from delegraph.errors import InvalidArgument, RuntimeFault
from delegraph.interfaces import BindContext, BoundCall, Kernel, KernelContext, KernelLibrary

__all__ = ["Array", "Context", "Prepare", "Scalar", "content_dependent_kernel", "prepared_kernel", "when_constant"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""A tensor argument, of any dtype and shape."""

Context: TypeAlias = BindContext
"""The first argument of a prepared function."""

Scalar: TypeAlias = bool | int | float | complex
"""A number argument."""

Prepare: TypeAlias = Callable[..., BoundCall]
"""(context, *arguments in schema order) -> the call that computes."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., object])


class _RunContext:
    """A `Context` for one execution: its workspace is the runtime's temporary memory."""

    __slots__ = ("allocate_temp", "resize", "workspace")

    def __init__(self, context: KernelContext) -> None:
        self.resize = context.resize
        self.allocate_temp = self.workspace = context.allocate_temp

    def is_constant(self, array: Array) -> bool:
        return False


def prepared_kernel(library: KernelLibrary, *operators: str) -> Callable[[Prepare], Prepare]:
    """Register the decorated function in `library` for `operators`: `prepare(context, *arguments)` returns the call
    that computes.

    Exceptions of NumPy and Python for arguments that the schema does not allow become `InvalidArgument`, and the
    operator's name is put before the message of every fault.
    """

    def register(prepare: Prepare) -> Prepare:
        def run(context: KernelContext, *args: object) -> None:
            prepare(_RunContext(context), *args)()

        for op in operators:
            library.add(Kernel(op, _naming(op, run), library.name, bind=_naming(op, prepare)))
        return prepare

    return register


def content_dependent_kernel(library: KernelLibrary, *operators: str) -> Callable[[_F], _F]:
    """Register a kernel whose output shape depends on its inputs' content, so that nothing can be prepared: the
    decorated function computes. Faults are as for `prepared_kernel`."""

    def register(function: _F) -> _F:
        for op in operators:
            library.add(Kernel(op, _naming(op, function), library.name))
        return function

    return register


def when_constant(context: Context, function: Callable[..., _T], *arrays: Array | None) -> Callable[[], _T]:
    """`function(*arrays)`: computed now if every array is constant, else at each call of the returned function."""
    if not all(array is None or context.is_constant(array) for array in arrays):
        return lambda: function(*arrays)
    value = function(*arrays)
    return lambda: value


_REFUSALS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The exceptions of NumPy and Python for arguments that the schema does not allow."""


def _naming(op: str, function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, with the operator's name before the message of every fault; NumPy's refusals become faults."""

    @wraps(function, assigned=("__module__", "__qualname__"), updated=())
    def named(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except RuntimeFault as fault:
            raise type(fault)(f"{op}: {fault}") from fault
        except _REFUSALS as refusal:
            raise InvalidArgument(f"{op}: {refusal}") from refusal

    return named
