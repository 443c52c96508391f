"""Operator names -> kernels: ExecuTorch's rules of choice among the libraries that are asked.

The choice is made once, when a method is loaded (ExecuTorch `runtime/kernel/operator_registry.cpp`): a kernel whose
key equals the dtypes and dim orders of the call's tensors goes before fallbacks, and among several the first library
in the user's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from delegraph.errors import OperatorMissing, PluginError
from delegraph.interfaces.kernel import Kernel, KernelKey, KernelLibraryInterface, kernel_key_text

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry

KernelOrder: TypeAlias = "Sequence[str | KernelLibraryInterface] | Mapping[str, Sequence[str | KernelLibraryInterface]]"
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


_Source: TypeAlias = "KernelLibraryInterface | partial[KernelLibraryInterface | None]"


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

        def loaded(order: Sequence[str | KernelLibraryInterface]) -> list[KernelLibraryInterface]:
            return [plugins.load("delegraph.kernels", item) if isinstance(item, str) else item for item in order]

        if not isinstance(kernels, Mapping):
            return cls(loaded(kernels))
        orders = {op: loaded(order) for op, order in kernels.items() if op != ALL_OPERATORS}
        return cls(loaded(kernels[ALL_OPERATORS]) if ALL_OPERATORS in kernels else installed, orders)

    @property
    def libraries(self) -> tuple[KernelLibraryInterface, ...]:
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

    def _loaded(self, order: list[_Source]) -> Iterator[KernelLibraryInterface]:
        for position, source in enumerate(order):
            library = self._load(source) if isinstance(source, partial) else source
            if library is not None:
                order[position] = library
                yield library

    def _load(self, source: partial[KernelLibraryInterface | None]) -> KernelLibraryInterface | None:
        try:
            return source()
        except PluginError as error:
            if str(error) not in map(str, self.broken):
                self.broken.append(error)
            return None


def _unrequested(plugins: PluginRegistry, name: str) -> KernelLibraryInterface | None:
    """The library `name`, unless it waits to be named."""
    library: KernelLibraryInterface = plugins.load("delegraph.kernels", name)
    return None if library.on_request else library
