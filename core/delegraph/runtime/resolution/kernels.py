"""Operator names -> kernels: ExecuTorch's rules of choice among the libraries that are asked.

The choice is made once, when a method is loaded (ExecuTorch `runtime/kernel/operator_registry.cpp`): a kernel whose
key equals the dtypes and dim orders of the call's tensors goes before fallbacks, and among several the first library
in the user's order. Without an order there is no first: several are refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from delegraph.errors import (
    InvalidArgument,
    OperatorMissing,
    PluginConflict,
    PluginError,
    PluginUnavailable,
    PluginWarning,
    not_loaded_text,
    printable,
)
from delegraph.interfaces.kernel import Kernel, KernelKey, KernelLibraryInterface, kernel_key_text
from delegraph.lazy_dataclass import dataclass
from delegraph.program.kernel_calls import Need

if TYPE_CHECKING:
    from delegraph.plugins.discovery import Offer
    from delegraph.plugins.registry import PluginRegistry

KernelOrder: TypeAlias = "Sequence[str | KernelLibraryInterface] | Mapping[str, Sequence[str | KernelLibraryInterface]]"
"""Kernel libraries or their names in order of preference; or by operator, where "*" stands for all other operators."""

ALL_OPERATORS: Final = "*"

_LISTED: Final = 8
"""How many operators a message lists."""


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel that a call gets. `others` are those it was preferred to, one of each library.

    `rivals` are the libraries, the chosen kernel's first, that could go first just as well: no order was given.
    """

    kernel: Kernel
    others: tuple[Kernel, ...] = ()
    rivals: tuple[KernelLibraryInterface, ...] = ()

    @property
    def reason(self) -> str:
        """Why this kernel was chosen, in words."""
        if self.rivals:
            return (
                f"{' and '.join(library.name for library in self.rivals)} have it, and no order says which goes first"
            )
        if self.kernel.key is not None:
            return "made for these dtypes and dim orders"
        if not self.others:
            return "the only one"
        return f"first in the order, before {', '.join(kernel.library for kernel in self.others)}"


@dataclass(frozen=True, slots=True)
class _Installed:
    """An installed library that is loaded when it is needed, unless it waits to be named."""

    plugins: PluginRegistry
    name: str

    def load(self) -> KernelLibraryInterface | None:
        library: KernelLibraryInterface = self.plugins.load(GROUP, self.name)
        return None if library.on_request else library


GROUP: Final = "delegraph.kernels"

_Source: TypeAlias = "KernelLibraryInterface | _Installed"


class KernelRegistry:
    """Kernel libraries in the order in which they are asked, and `orders` of single operators.

    Libraries that are merely installed have no order (`of` with None): two with kernels of equal rank for a call are
    refused, so that installing a library never replaces another's kernels behind the user's back.
    """

    def __init__(
        self,
        libraries: Iterable[KernelLibraryInterface],
        orders: Mapping[str, Iterable[KernelLibraryInterface]] | None = None,
    ) -> None:
        self._sources: list[_Source] = list(libraries)
        self._orders: dict[str, list[_Source]] = {op: list(order) for op, order in (orders or {}).items()}
        self._ordered = True
        self._offers: dict[int, Offer] = {}
        self._broken: dict[str, PluginError] = {}

    @classmethod
    def of(cls, kernels: KernelOrder | None, plugins: PluginRegistry) -> KernelRegistry:
        """The libraries `kernels`, those given by name from `plugins`; None: all that `plugins` has, in no order,
        except those `on_request`.

        Raises a `PluginError` if one that was named cannot be loaded.
        """

        def loaded(order: Sequence[str | KernelLibraryInterface]) -> list[KernelLibraryInterface]:
            if isinstance(order, str):
                raise InvalidArgument(f'kernels is a list of kernel libraries, kernels=["{order}"], not {order!r}')
            return [plugins.load(GROUP, item) if isinstance(item, str) else item for item in order]

        if kernels is not None and not isinstance(kernels, Mapping):
            return cls(loaded(kernels))
        orders = dict(kernels or {})
        general = orders.pop(ALL_OPERATORS, None)
        registry = cls(loaded(general or ()), {op: loaded(order) for op, order in orders.items()})
        if general is None:
            registry._sources = [_Installed(plugins, name) for name in plugins.names(GROUP)]
            registry._ordered = False
        return registry

    @property
    def libraries(self) -> tuple[KernelLibraryInterface, ...]:
        """Every library that can be loaded, in order; then those that are asked for single operators only."""
        orders = [self._sources, *self._orders.values()]
        return tuple(dict.fromkeys(library for order in orders for library in self._loaded(order)))

    @property
    def broken(self) -> tuple[PluginError, ...]:
        """Why installed libraries, of those that were asked until now, could not be loaded."""
        return tuple(self._broken.values())

    def choose(self, op: str, key: KernelKey) -> KernelChoice | None:
        """The kernel for a call of `op` with tensors of these dtypes and dim orders, or None."""
        order = self._loaded(self._orders.get(op, self._sources))
        matches = [(kernel, library) for library in order if (kernel := library.lookup(op, key)) is not None]
        if not matches:
            return None
        matches.sort(key=lambda pair: pair[0].key is None)  # stable: the order stays
        (best, _), *others = matches
        equal = tuple(library for kernel, library in matches if (kernel.key is None) == (best.key is None))
        rivals = equal if len(equal) > 1 and not self._ordered and op not in self._orders else ()
        return KernelChoice(best, tuple(kernel for kernel, _ in others), rivals)

    def resolve(self, needs: Iterable[Need]) -> dict[Need, Kernel]:
        """The kernel for each of `needs`. An installed library that cannot be loaded is left out with a warning, once.

        Raises one `OperatorMissing` for all that no library has, or one `PluginConflict` for all that several have.
        """
        choices = {need: self.choose(*need) for need in needs}
        if missing := [need for need, choice in choices.items() if choice is None]:
            raise OperatorMissing(self.missing_text(missing))
        chosen = {need: choice for need, choice in choices.items() if choice is not None}
        if contested := {op: choice.rivals for (op, _), choice in sorted(chosen.items()) if choice.rivals}:
            raise PluginConflict(self._conflict_text(contested))
        self._warn_of_broken()
        return {need: choice.kernel for need, choice in chosen.items()}

    def lookup(self, op: str, key: KernelKey) -> Kernel:
        """The kernel that `choose` prefers. Raises as `resolve`."""
        return self.resolve([(op, key)])[op, key]

    def missing_text(self, missing: Iterable[tuple[str, KernelKey]]) -> str:
        """The message for somebody who needs kernels that no library has."""
        needs = "\n".join(sorted(f"  {printable(op)} on {kernel_key_text(key)}" for op, key in missing))
        asked = ", ".join(library.name for library in self.libraries) or "none installed"
        return (
            f"no kernel for\n{needs}\nin the kernel libraries asked ({asked});"
            f" install one that has it, or lower the operators to a backend{not_loaded_text(self.broken)}"
        )

    def _conflict_text(self, contested: Mapping[str, Sequence[KernelLibraryInterface]]) -> str:
        """The message for somebody who has to say which library goes first; `contested` are operators."""
        rivals = dict.fromkeys(library for libraries in contested.values() for library in libraries)
        offers = [self._offers[id(library)] for library in rivals]
        named = " and ".join(f"{offer.name} (of {offer.provider})" for offer in offers)
        names = [offer.name for offer in offers]
        order = ", ".join(f'"{name}"' for name in names)
        first = next(iter(contested))
        listed = "".join(f"\n  {printable(op)}" for op in list(contested)[:_LISTED])
        more = f"\n  and {len(contested) - _LISTED} more" if len(contested) > _LISTED else ""
        return (
            f"the kernel libraries {named} both have kernels for these operators, and no order says which goes first:"
            f"{listed}{more}\n"
            f"  what to do: give an order, kernels=[{order}] or the other way round (on the command line --kernels"
            f" {','.join(names)}); for one operator, kernels={{"
            f'"{first}": ["{names[0]}"]'
            "}; or uninstall one"
        )

    def operator_names(self) -> frozenset[str]:
        """Every operator that some library has."""
        return frozenset[str]().union(*(library.operator_names() for library in self.libraries))

    def _loaded(self, order: list[_Source]) -> Iterator[KernelLibraryInterface]:
        for position, source in enumerate(order):
            library = self._load(source) if isinstance(source, _Installed) else source
            if library is not None:
                order[position] = library
                yield library

    def _load(self, source: _Installed) -> KernelLibraryInterface | None:
        if source.name in self._broken:
            return None
        try:
            library = source.load()
        except PluginError as error:
            self._broken[source.name] = error
            return None
        if library is not None:
            self._offers[id(library)] = source.plugins.find(GROUP, source.name)
        return library

    def _warn_of_broken(self) -> None:
        """Say which libraries might have been preferred, or refused beside another, if they could be loaded.

        Not those that only lack an extra. The place is this line, so that Python shows each once in a process.
        """
        for name, error in self._broken.items():
            if isinstance(error.__cause__, PluginUnavailable):
                continue
            told = f"going on without the installed kernel library {name!r}: {error}"
            if isinstance(error, PluginConflict):  # the others say it themselves
                told += f"; DELEGRAPH_DISABLE_PLUGINS=kernels:{name} goes without it"
            warnings.warn(told, PluginWarning, stacklevel=1)
