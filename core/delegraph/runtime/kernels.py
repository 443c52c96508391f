"""Operator names -> kernels: what a kernel is, how a library offers it, and ExecuTorch's rules of choice.

A kernel is a function `(context, *schema_arguments)`, out arguments included and last. Tensors are NumPy
arrays (of any strides) that alias planned memory, scalars are Python's, dtypes and layouts are `int` codes
as in the file, absent optionals are None, lists are lists. It writes its result into `out` and returns nothing.

The choice is made once, when a method is loaded (ExecuTorch `runtime/kernel/operator_registry.cpp`): a kernel whose
key equals the dtypes and dim orders of the call's tensors goes before fallbacks, and among several the first library
in the user's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import KernelAlreadyRegistered, OperatorMissing, PluginError
from delegraph.program.dtypes import scalar_type
from delegraph.program.schema import ScalarType

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry

TensorMeta: TypeAlias = tuple[ScalarType, tuple[int, ...]]
"""The dtype and dim order of one tensor argument."""

KernelKey: TypeAlias = tuple[TensorMeta, ...]
"""One `TensorMeta` per tensor in the schema's arguments (out arguments included), in order."""

BoundCall: TypeAlias = Callable[[], object]
"""A call with everything already in it; what the executor runs."""


class KernelContext(Protocol):
    """What a kernel may ask of the runtime."""

    def resize(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """`out` at its new `shape`, over the same planned memory; write into what is returned.

        Raises `InvalidArgument` if `out` is static and of another shape, or `shape` exceeds its bound.
        """

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Uninitialised C-contiguous scratch memory, valid until the kernel returns."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of one operator.

    `key` None makes it the library's fallback. `bind`, if given, is called at load in place of `function` where
    every argument is known and fixed (static shapes): `bind(context, *args)` returns a call without arguments, with
    whatever can be prepared already done (packed weights, chosen code path), or None to decline. Tensor arguments keep
    their memory for the method's life; only those that `context.is_constant(array)` says never change content.
    """

    op: str
    function: Callable[..., object]
    library: str
    key: KernelKey | None = None
    bind: Callable[..., BoundCall | None] | None = None


class BindContext(KernelContext, Protocol):
    """What a kernel's `bind` may ask."""

    def is_constant(self, array: NDArray[Any]) -> bool:
        """Whether the array's content can never change: it lies in the program's constants."""

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Uninitialised C-contiguous scratch memory that the bound call may use each time it runs.

        All instructions of a method share it: nothing survives in it from one call to the next.
        """


_F = TypeVar("_F", bound=Callable[..., object])


class KernelLibrary:
    """A named set of kernels; the object behind a `delegraph.kernels` entry point.

    library = KernelLibrary("mine")

    @library.kernel("aten::add.out")
    def add_out(context, self, other, alpha, out): ...
    """

    delegraph_api = (1, 0)

    on_request = False
    """Whether the library is asked only where the user names it: installing it changes nothing by itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kernels: dict[tuple[str, KernelKey | None], Kernel] = {}

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
        return self._kernels.get((op, key)) or self._kernels.get((op, None))

    def operator_names(self) -> frozenset[str]:
        """Every operator that this library has some kernel for."""
        return frozenset(op for op, _ in self._kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __repr__(self) -> str:
        return f"KernelLibrary({self.name!r}, {len(self._kernels)} kernels)"


KernelOrder: TypeAlias = "Sequence[str | KernelLibrary] | Mapping[str, Sequence[str | KernelLibrary]]"
"""Kernel libraries or their names in order of preference; or by operator, where "*" stands for all other operators."""

ALL_OPERATORS: Final = "*"


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel that a call gets. `others` are those it was preferred to, one of each library."""

    kernel: Kernel
    others: tuple[Kernel, ...] = ()

    @property
    def reason(self) -> str:
        """Why this one, in words."""
        if self.kernel.key is not None:
            return "made for these dtypes and dim orders"
        if not self.others:
            return "the only one"
        return f"first in the order, before {', '.join(other.library for other in self.others)}"


_Source: TypeAlias = "KernelLibrary | partial[KernelLibrary | None]"


class KernelRegistry:
    """Kernel libraries in order of preference. A library may be given as a `partial` that loads it when needed.

    `orders` are the orders of single operators. A library that is `on_request` is only asked if it was given itself.
    """

    def __init__(self, libraries: Iterable[_Source], orders: Mapping[str, Iterable[_Source]] | None = None) -> None:
        self._sources = list(libraries)
        self._orders = {op: list(order) for op, order in (orders or {}).items()}
        self.broken: list[PluginError] = []
        """Why libraries could not be loaded. Nobody who does not need them is troubled."""

    @classmethod
    def of(cls, kernels: KernelOrder | None, plugins: PluginRegistry) -> KernelRegistry:
        """The libraries `kernels`, those given by name from `plugins`; None: all that `plugins` has, sorted by name,
        except those `on_request`.

        Raises a `PluginError` if one that was named cannot be loaded.
        """
        installed = [partial(_unrequested, plugins, name) for name in plugins.names("delegraph.kernels")]
        if kernels is None:
            return cls(installed)

        def loaded(order: Sequence[str | KernelLibrary]) -> list[KernelLibrary]:
            return [plugins.load("delegraph.kernels", item) if isinstance(item, str) else item for item in order]

        if not isinstance(kernels, Mapping):
            return cls(loaded(kernels))
        orders = {op: loaded(order) for op, order in kernels.items() if op != ALL_OPERATORS}
        return cls(loaded(kernels[ALL_OPERATORS]) if ALL_OPERATORS in kernels else installed, orders)

    @property
    def libraries(self) -> tuple[KernelLibrary, ...]:
        """Every library that can be loaded, in order; then those that are asked for single operators only."""
        orders = [self._sources, *self._orders.values()]
        return tuple(dict.fromkeys(library for order in orders for library in self._loaded(order)))

    def choose(self, op: str, key: KernelKey) -> KernelChoice | None:
        """The kernel for a call of `op` with tensors of these dtypes and dim orders, or None."""
        order = self._loaded(self._orders.get(op, self._sources))
        found = [kernel for library in order if (kernel := library.lookup(op, key)) is not None]
        found.sort(key=lambda kernel: kernel.key is None)  # stable: the order stays
        return KernelChoice(found[0], tuple(found[1:])) if found else None

    def find(self, op: str, key: KernelKey) -> Kernel | None:
        """The kernel that `choose` prefers, or None."""
        choice = self.choose(op, key)
        return None if choice is None else choice.kernel

    def lookup(self, op: str, key: KernelKey) -> Kernel:
        """The kernel that `choose` prefers. Raises `OperatorMissing`, which says what would help."""
        kernel = self.find(op, key)
        if kernel is None:
            raise OperatorMissing(self.missing_text([(op, key)]))
        return kernel

    def missing_text(self, missing: Iterable[tuple[str, KernelKey]]) -> str:
        """What to tell somebody who needs kernels that no library has."""
        wanted = "\n".join(sorted(f"  {op} on {kernel_key_text(key)}" for op, key in missing))
        asked = ", ".join(library.name for library in self.libraries) or "none installed"
        broken = "".join(f"\n  could not be loaded: {error}" for error in self.broken)
        return (
            f"no kernel for\n{wanted}\nin the kernel libraries asked ({asked});"
            f" install one that has it, or lower the operators to a backend{broken}"
        )

    def operator_names(self) -> frozenset[str]:
        """Every operator that some library has."""
        return frozenset[str]().union(*(library.operator_names() for library in self.libraries))

    def _loaded(self, order: list[_Source]) -> Iterator[KernelLibrary]:
        for position, source in enumerate(order):
            library = self._load(source) if isinstance(source, partial) else source
            if library is not None:
                order[position] = library
                yield library

    def _load(self, source: partial[KernelLibrary | None]) -> KernelLibrary | None:
        try:
            return source()
        except PluginError as error:
            if str(error) not in map(str, self.broken):
                self.broken.append(error)
            return None


def _unrequested(plugins: PluginRegistry, name: str) -> KernelLibrary | None:
    """The library `name`, unless it waits to be named."""
    library: KernelLibrary = plugins.load("delegraph.kernels", name)
    return None if library.on_request else library


def kernel_key_text(key: KernelKey) -> str:
    """ExecuTorch's text of a key: `v1/6;0,1|6;0,1`."""
    return "v1/" + "|".join(f"{int(dtype)};{','.join(map(str, order))}" for dtype, order in key)


def _where(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
