"""Programs' needs, installed plug-ins -> Choice: the kernels and backends that run the programs here, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from delegraph.devtools.selective_build.deployed import OrderOfNames
from delegraph.devtools.selective_build.needs import ProgramNeeds
from delegraph.devtools.selective_build.registrations import FALLBACK, Registrations, registrations
from delegraph.errors import BackendMissing, OperatorMissing, PluginConflict, PluginError, PluginNotFound, restated
from delegraph.interfaces.kernel import Kernel, kernel_key_text
from delegraph.interfaces.stamp import BlobStamp
from delegraph.plugins.discovery import Offer
from delegraph.plugins.missing import INSTALL
from delegraph.plugins.registry import IN_PROCESS, PluginRegistry
from delegraph.runtime.resolution.kernels import KernelRegistry

__all__ = ["Choice", "ChosenLibrary", "choose"]


@dataclass(frozen=True, slots=True)
class ChosenLibrary:
    """A kernel library, and the keys kept of it by operator; `default` is its fallback."""

    offer: Offer
    kept: dict[str, tuple[str, ...]]
    registrations: Registrations

    @property
    def needed_modules(self) -> frozenset[str]:
        """The modules that register a kernel that is kept."""
        slots = ((operator, key) for operator, keys in self.kept.items() for key in keys)
        return frozenset(self.registrations.modules[slot] for slot in slots if slot in self.registrations.modules)


@dataclass(frozen=True, slots=True)
class Choice:
    """The parts of a deployable; `order` is the order of preference of the libraries that are kept."""

    libraries: tuple[ChosenLibrary, ...]
    order: OrderOfNames
    backends: tuple[Offer, ...]

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All plug-ins that are kept."""
        return (*(library.offer for library in self.libraries), *self.backends)


def choose(programs: Sequence[ProgramNeeds], plugins: PluginRegistry, kernels: OrderOfNames | None = None) -> Choice:
    """The kernels that win, as when the programs are loaded with `kernels`, and the backends of their blobs.

    Raises `OperatorMissing`, `BackendMissing`, or `PluginError` for what cannot be packed up or chosen.
    """
    kept = _kept(programs, KernelRegistry.of(kernels, plugins))
    chosen = []
    order = plugins.names("delegraph.kernels") if kernels is None else kernels
    for name in _flat(order):
        own = kept.pop(_library_name(plugins, name), None)
        if own is not None:
            offer = _distributed(plugins.find("delegraph.kernels", name))
            keys = {operator: tuple(sorted(texts)) for operator, texts in sorted(own.items())}
            chosen.append(ChosenLibrary(offer, keys, registrations(offer)))
    return Choice(
        tuple(chosen), _among(order, {library.offer.name for library in chosen}), tuple(_backends(programs, plugins))
    )


def _flat(order: OrderOfNames) -> list[str]:
    """Each name once."""
    orders = order.values() if isinstance(order, Mapping) else [order]
    return list(dict.fromkeys(name for names in orders for name in names))


def _among(order: OrderOfNames, kept: set[str]) -> OrderOfNames:
    if isinstance(order, Mapping):
        return {operator: tuple(name for name in names if name in kept) for operator, names in order.items()}
    return tuple(name for name in order if name in kept)


def _kept(programs: Sequence[ProgramNeeds], registry: KernelRegistry) -> dict[str, dict[str, set[str]]]:
    """Library name -> operator -> keys."""
    kept: dict[str, dict[str, set[str]]] = {}
    for needs in programs:
        calls = {(call.operator, call.key) for call in needs.calls if not call.is_prim}
        try:
            kernels = registry.resolve(calls)
        except (OperatorMissing, PluginConflict) as error:
            raise restated(error, f"{needs.path}: {error}") from error
        for (operator, _), kernel in kernels.items():
            kept.setdefault(kernel.library, {}).setdefault(operator, set()).add(_key(kernel))
    return kept


def _key(kernel: Kernel) -> str:
    return FALLBACK if kernel.key is None else kernel_key_text(kernel.key)


def _library_name(plugins: PluginRegistry, name: str) -> str:
    """The own name of the library behind the entry point `name`; "" if it cannot be loaded."""
    try:
        return str(plugins.load("delegraph.kernels", name).name)
    except PluginError:
        return ""


def _distributed(offer: Offer) -> Offer:
    if offer.distribution == IN_PROCESS:
        raise PluginError(
            f"{offer.id} was registered in this process, and only what is installed can be packed up;"
            f" give it an entry point in a distribution of its own"
        )
    return offer


def _backends(programs: Sequence[ProgramNeeds], plugins: PluginRegistry) -> Iterator[Offer]:
    offers: dict[str, Offer] = {}
    missing = []
    for needs in programs:
        for backend, stamps in needs.backends.items():
            try:
                offers[backend] = _distributed(plugins.find("delegraph.backends", backend))
            except PluginNotFound:
                missing.append(f"{needs.path}: backend {backend!r} is not installed; {_remedy(stamps)}")
    if missing:
        raise BackendMissing("\n".join(missing))
    return (offers[backend] for backend in sorted(offers))


def _remedy(stamps: frozenset[BlobStamp]) -> str:
    makers = sorted(f"{stamp.distribution!r:.80} {stamp.version!r:.40}" for stamp in stamps)
    return f"the file says that {' and '.join(makers)} made its blobs; {INSTALL}" if makers else INSTALL
