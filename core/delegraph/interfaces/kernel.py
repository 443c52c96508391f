"""The interfaces of kernels, of the contexts that they are passed, and of the libraries that offer them.

A kernel is a function `(context, *schema_arguments)`, out arguments included and last. Tensors are NumPy
arrays (of any strides) that alias planned memory, scalars are Python's, dtypes and layouts are `int` codes
as in the file, absent optionals are None, lists are lists. It writes its result into `out` and returns nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, TypeVar

from delegraph.errors import KernelAlreadyRegistered
from delegraph.lazy_dataclass import dataclass
from delegraph.program.dtypes import scalar_type
from delegraph.program.kernel_calls import KernelKey, TensorMeta, kernel_key_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "BindContext",
    "BoundCall",
    "Kernel",
    "KernelContext",
    "KernelKey",
    "KernelLibrary",
    "KernelLibraryInterface",
    "TensorMeta",
    "kernel_key_text",
]

BoundCall: TypeAlias = Callable[[], object]
"""A call with its arguments bound, which the executor runs."""


_Scalar = TypeVar("_Scalar", bound="np.generic")


class KernelContext(Protocol):
    """The runtime's services for a kernel."""

    def resize(self, out: NDArray[_Scalar], shape: tuple[int, ...]) -> NDArray[_Scalar]:
        """`out` at its new `shape`, over the same planned memory; write into the returned array.

        Raises `InvalidArgument` if `out` is static and of another shape, or `shape` exceeds its bound.
        """

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[_Scalar]) -> NDArray[_Scalar]:
        """Uninitialised C-contiguous scratch memory, valid until the kernel returns."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of one operator.

    `key` None makes it the library's fallback. `bind`, if given, is called at load in place of `function` where
    every argument is known and fixed (static shapes), and where shapes change once for shapes that stay:
    `bind(context, *args)` returns a call without arguments, with
    whatever can be prepared already done (packed weights, chosen code path), or None to decline. Tensor arguments keep
    their memory for the method's life; only those that `context.is_constant(array)` says never change content.
    """

    op: str
    function: Callable[..., object]
    library: str
    key: KernelKey | None = None
    bind: Callable[..., BoundCall | None] | None = None


class BindContext(KernelContext, Protocol):
    """The runtime's services for a kernel's `bind`."""

    def is_constant(self, array: NDArray[np.generic]) -> bool:
        """Whether the array's content can never change: it lies in the program's constants."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype[_Scalar]) -> NDArray[_Scalar]:
        """Uninitialised C-contiguous scratch memory that the bound call may use each time it runs.

        All instructions of a method share it: nothing survives in it from one call to the next.
        """


_F = TypeVar("_F", bound=Callable[..., object])


class KernelLibraryInterface(ABC):
    """A named set of kernels, the object behind a `delegraph.kernels` entry point. Torch-free, unless it is
    torch's kernels that it offers. Most are a `KernelLibrary`; this one finds kernels as it likes.
    """

    delegraph_api: ClassVar[tuple[int, int]] = (1, 0)
    """The lowest plug-in API that this library needs."""

    name: str = ""
    """The library's name in orders and reports; "" stands for its entry point's name."""

    on_request: bool = False
    """Whether the library is asked only where the user names it: installing it changes nothing by itself."""

    @abstractmethod
    def lookup(self, op: str, key: KernelKey) -> Kernel | None:
        """The kernel of exactly `key`, else the fallback, else None."""

    @abstractmethod
    def operator_names(self) -> frozenset[str]:
        """Every operator ("namespace::name.overload") that this library has some kernel for."""


class KernelLibrary(KernelLibraryInterface):
    """A table of kernels, filled by decorated functions.

    library = KernelLibrary("mine")

    @library.kernel("aten::add.out")
    def add_out(context, self, other, alpha, out): ...

    `modules`, for a library of many: by the name of a module the operators whose kernels it registers. Each is imported
    when one of these is first looked up, so that a program waits for the kernels that it calls, and for no others.
    """

    def __init__(self, name: str, modules: Mapping[str, Iterable[str]] | None = None) -> None:
        self.name = name
        self._kernels: dict[tuple[str, KernelKey | None], Kernel] = {}
        self._modules: dict[str, list[str]] = {}
        for module, operators in (modules or {}).items():
            for op in operators:
                self._modules.setdefault(op, []).append(module)

    def kernel(
        self,
        op: str,
        *,
        dtypes: Sequence[str] | None = None,
        dim_orders: Sequence[tuple[int, ...]] | None = None,
        bind: Callable[..., BoundCall | None] | None = None,
    ) -> Callable[[_F], _F]:
        """Register the decorated function for `op` ("namespace::name.overload").

        `dtypes` and `dim_orders`, given together, one per tensor argument of the schema (out included), make a partial
        kernel. Raises `KernelAlreadyRegistered` if this library has the same operator and key.
        """
        if (dtypes is None) != (dim_orders is None):
            raise ValueError(f"{op}: a partial kernel names both dtypes and dim_orders")
        key: KernelKey | None = None
        if dtypes is not None and dim_orders is not None:
            key = tuple((scalar_type(d), tuple(o)) for d, o in zip(dtypes, dim_orders, strict=True))

        def register(function: _F) -> _F:
            self.add(Kernel(op, function, self.name, key, bind))
            return function

        return register

    def add(self, kernel: Kernel) -> None:
        """Add one kernel. Raises `KernelAlreadyRegistered` on a duplicate of (op, key)."""
        slot = (kernel.op, kernel.key)
        if slot in self._kernels:
            raise KernelAlreadyRegistered(
                f"kernel library {self.name!r} registers {kernel.op} twice"
                f" ({'fallback' if kernel.key is None else kernel_key_text(kernel.key)}):"
                f" {_where(self._kernels[slot].function)} and {_where(kernel.function)}"
            )
        self._kernels[slot] = kernel

    def lookup(self, op: str, key: KernelKey) -> Kernel | None:
        """The kernel of exactly `key`, else the fallback, else None."""
        self._import(op)
        return self._kernels.get((op, key)) or self._kernels.get((op, None))

    def _import(self, op: str) -> None:
        for module in self._modules.get(op, ()):  # those of it that are imported already cost a look into a dict
            import_module(module)
        self._modules.pop(op, None)

    def operator_names(self) -> frozenset[str]:
        """Every operator that this library has some kernel for."""
        return frozenset((*self._modules, *(op for op, _ in list(self._kernels))))

    def __iter__(self) -> Iterator[Kernel]:
        for op in list(self._modules):
            self._import(op)
        return iter(self.registered())

    def registered(self) -> tuple[Kernel, ...]:
        """The kernels of the modules that are imported by now."""
        return tuple(self._kernels.values())

    def __repr__(self) -> str:
        return f"KernelLibrary({self.name!r}, {len(self._kernels)} kernels)"


def _where(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
