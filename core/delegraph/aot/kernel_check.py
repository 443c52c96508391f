"""Emitted methods -> nothing, or one error that lists every operator which no installed kernel library has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch.fx import Node

from delegraph.aot.emit import EmittedMethod
from delegraph.aot.source_location import user_location
from delegraph.errors import MissingKernel
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.prim_op_names import PRIM_OPS

__all__ = ["check_kernels", "installed_operators"]


def installed_operators(registry: PluginRegistry) -> dict[str, frozenset[str]]:
    """Kernel library -> the operators that it has kernels for; the runtime's own operators under "runtime".

    A library that does not load offers nothing; `delegraph plugins list` shows it.
    """
    libraries, _broken = registry.load_all("delegraph.kernels")
    return {"runtime": PRIM_OPS} | {name: library.operator_names() for name, library in libraries.items()}


def check_kernels(methods: Iterable[EmittedMethod], registry: PluginRegistry) -> None:
    """Raise one `MissingKernel` for everything that no installed library could run."""
    libraries = installed_operators(registry)
    known = frozenset[str]().union(*libraries.values())
    missing: dict[str, list[tuple[str, Node]]] = {}
    for method in methods:
        for operator, nodes in method.builder.users.items():
            if str(operator) not in known:
                missing.setdefault(str(operator), []).extend((method.name, node) for node in nodes)
    if missing:
        first = next(iter(missing.values()))[0][1]
        raise MissingKernel(_text(missing, sorted(libraries)), node=first.name, location=user_location(first))


def _text(missing: dict[str, list[tuple[str, Node]]], libraries: Sequence[str]) -> str:
    lines = [f"\n- {operator}{_uses(users)}" for operator, users in sorted(missing.items())]
    return (
        f"{len(lines)} operator{'s' * (len(lines) > 1)} without a kernel in the installed kernel libraries"
        f" ({', '.join(libraries)}):{''.join(lines)}\n"
        "  what to do: delegate these nodes to a backend that takes them; install a kernel library that has them; or,"
        " to lower for a device that has them, set ExecutorchBackendConfig(check_kernels=False)"
    )


def _uses(users: Sequence[tuple[str, Node]]) -> str:
    shown = "".join(
        f"\n    {method}: {node.name} at {user_location(node) or 'an unknown line'}" for method, node in users[:8]
    )
    return shown + (f"\n    and {len(users) - 8} more nodes" if len(users) > 8 else "")
