"""Operators that methods call -> nothing, or one error that lists each which no installed kernel library has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from torch.fx import Node

from delegraph.aot.graph.source_location import user_location
from delegraph.errors import MissingKernel, not_loaded_text
from delegraph.interfaces.kernel import KernelLibraryInterface
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.prim_op_names import BUILT_IN
from delegraph.program.schema import Operator

__all__ = ["check_kernels", "operators_by_library"]


def operators_by_library(
    kernels: Sequence[str | KernelLibraryInterface] | None, registry: PluginRegistry
) -> dict[str, frozenset[str]]:
    """Kernel library -> the operators that it has kernels for; the runtime's own operators under "runtime".

    `kernels` are libraries or names of installed ones; None: all that are installed, but for those that wait to be
    asked for. A library that does not load offers nothing then. Raises `PluginError` for a name that nobody offers.
    """
    if kernels is None:
        libraries, _broken = registry.load_all("delegraph.kernels")
        asked = [library for library in libraries.values() if not library.on_request]
    else:
        asked = [registry.load("delegraph.kernels", entry) if isinstance(entry, str) else entry for entry in kernels]
    return {"runtime": BUILT_IN} | {library.name: library.operator_names() for library in asked}


def check_kernels(
    users: Mapping[str, Mapping[Operator, Sequence[Node]]],
    libraries: Mapping[str, frozenset[str]],
    registry: PluginRegistry,
) -> None:
    """Raise one `MissingKernel` for everything that none of `libraries` (name -> operators) could run.

    `users` has by method the nodes that call each operator. The error names the libraries of `registry` that are only
    used on request and have what is missing, and those that cannot be loaded.
    """
    known = frozenset[str]().union(*libraries.values())
    missing: dict[str, list[tuple[str, Node]]] = {}
    for method, operators in users.items():
        for operator, nodes in operators.items():
            if str(operator) not in known:
                missing.setdefault(str(operator), []).extend((method, node) for node in nodes)
    if missing:
        first = next(iter(missing.values()))[0][1]
        installed, broken = registry.load_all("delegraph.kernels")
        text = _text(missing, sorted(libraries), _offers(missing, libraries, installed.values()))
        raise MissingKernel(text + not_loaded_text(broken), node=first.name, location=user_location(first))


def _text(missing: dict[str, list[tuple[str, Node]]], libraries: Sequence[str], offers: str) -> str:
    lines = [f"\n- {operator}{_uses(users)}" for operator, users in sorted(missing.items())]
    return (
        f"{len(lines)} operator{'s' * (len(lines) > 1)} without a kernel in the kernel libraries"
        f" ({', '.join(libraries)}):{''.join(lines)}\n"
        f"  what to do: {offers}"
        "delegate these nodes to a backend that takes them; install a kernel library that has them; or,"
        " to lower for a device that has them, name its libraries in ExecutorchBackendConfig(kernels=[…]), or set"
        " check_kernels=False"
    )


def _offers(missing: Collection[str], asked: Collection[str], installed: Iterable[KernelLibraryInterface]) -> str:
    """The libraries that are installed, wait to be asked, and have some of what is missing."""
    waiting = [library for library in installed if library.on_request and library.name not in asked]
    offers = [(library.name, sorted(library.operator_names() & set(missing))) for library in waiting]
    return "".join(
        f"the installed kernel library {name!r}, which is only used on request, has"
        f" {'all of them' if len(has) == len(missing) else ', '.join(has)}: name it after the others in"
        f" ExecutorchBackendConfig(kernels=[…, {name!r}]) and in load(kernels=[…, {name!r}]); or "
        for name, has in offers
        if has
    )


def _uses(users: Sequence[tuple[str, Node]]) -> str:
    shown = "".join(
        f"\n    {method}: {node.name} at {user_location(node) or 'an unknown line'}" for method, node in users[:8]
    )
    return shown + (f"\n    and {len(users) - 8} more nodes" if len(users) > 8 else "")
