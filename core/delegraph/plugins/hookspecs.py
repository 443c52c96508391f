"""The table of entry-point groups, and the hooks of each: read off the classes in `delegraph.interfaces`.

A *hook* is a public method that the group's interface class defines, with its parameters; where the interface is that
of a function, its one hook is the call itself. An *attribute* is a value that the class gives to a public name.
Whatever is derived from the interfaces (validation, tools' wrappers, pluggy's specs) asks here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from typing import Final

from delegraph.lazy_dataclass import dataclass

__all__ = ["GROUPS", "Form", "PluginGroup", "group_named", "parameters"]


class Form(Enum):
    """The form in which an entry point's object is used."""

    FACTORY = "a callable that makes something of options"
    FUNCTION = "a callable"
    CLASS = "a class, used as it is"
    INSTANCE = "an object; a class is instantiated, once"


@dataclass(frozen=True)
class PluginGroup:
    """One entry-point group. In a `torch_free` one, loading a plug-in must not bring torch into the process.

    `module` and `class_name` say where in `delegraph.interfaces` its interface is, which is imported when it is needed.
    """

    name: str
    module: str
    class_name: str
    form: Form
    torch_free: bool
    product: PluginGroup | None = None
    """The class that a factory's result must fit."""
    base: str = ""
    """The class to derive from, as authors import it."""

    @property
    def title(self) -> str:
        """The word for one of its plug-ins in messages: `memory planner`."""
        plural = self.name.removeprefix("delegraph.").replace("_", " ")
        return plural.removesuffix("es" if plural.endswith("sses") else "s")

    @cached_property
    def interface(self) -> type:
        """The class that the group's objects fit."""
        interface: type = getattr(import_module(f"delegraph.interfaces.{self.module}"), self.class_name)
        return interface

    @cached_property
    def hook_names(self) -> tuple[str, ...]:
        """The hooks in the order in which they stand in the class."""
        if self.form in (Form.FACTORY, Form.FUNCTION):
            return ("__call__",)
        methods = {name for name, value in _public(self.interface) if inspect.isroutine(value)}
        return tuple(name for name in vars(self.interface) if name in methods)

    @cached_property
    def default_hooks(self) -> frozenset[str]:
        """The hooks that the class itself does something sensible for: a plug-in may do without them."""
        abstract: frozenset[str] = getattr(self.interface, "__abstractmethods__", frozenset())
        is_protocol = getattr(self.interface, "_is_protocol", False)  # bodies of those do nothing
        return frozenset() if is_protocol else frozenset(self.hook_names) - abstract

    @cached_property
    def attributes(self) -> Mapping[str, bool | int | str]:
        """The attributes and the values that they have where a plug-in does not say otherwise."""
        return {name: value for name, value in _public(self.interface) if isinstance(value, bool | int | str)}

    def parameters(self, hook: str) -> tuple[str, ...]:
        """The names of a hook's parameters, in order."""
        return parameters(self.interface, hook)

    def optional_parameters(self, hook: str) -> tuple[str, ...]:
        """Those that the interface gives a default: an author's hook may do without them, and is not given them."""
        signature = _signature(self.interface, hook)
        return tuple(name for name, each in signature.parameters.items() if each.default is not each.empty)

    def is_own_hook(self, hook: str, method: object) -> bool:
        """Whether a plug-in's `method` is the hook as the interface has it, inherited."""
        return getattr(method, "__func__", None) is vars(self.interface).get(hook, self)

    def text(self, hook: str) -> str:
        """A hook as messages show it: `execute(context, handle, args)`; of a function, its parameters alone."""
        return f"{hook.removeprefix('__call__')}({', '.join(self.parameters(hook))})"


def parameters(interface: type, hook: str) -> tuple[str, ...]:
    """The names of the parameters of `interface`'s `hook`, in order, without `self`."""
    names = tuple(_signature(interface, hook).parameters)
    return names[1:] if inspect.isfunction(inspect.getattr_static(interface, hook)) else names


@cache
def _signature(interface: type, hook: str) -> inspect.Signature:
    return inspect.signature(getattr(interface, hook))


def _public(interface: type) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(interface).items() if not name.startswith("_")]


def _factory(name: str, module: str, class_name: str, product: str = "") -> PluginGroup:
    made = PluginGroup(name, module, product, Form.INSTANCE, False, base=f"delegraph.interfaces.{product}")
    return PluginGroup(name, module, class_name, Form.FACTORY, torch_free=False, product=made if product else None)


def _implemented(name: str, module: str, class_name: str, form: Form, torch_free: bool, base: str = "") -> PluginGroup:
    return PluginGroup(name, module, class_name, form, torch_free, base=f"delegraph.interfaces.{base or class_name}")


GROUPS: Final[Mapping[str, PluginGroup]] = {
    group.name: group
    for group in (
        _factory("delegraph.partitioners", "lowering", "PartitionerFactory", "Partitioner"),
        PluginGroup(
            "delegraph.partitioner_adapters", "lowering", "PartitionerAdapter", Form.FUNCTION, torch_free=False
        ),
        _implemented("delegraph.lowerings", "lowering", "BackendDetails", Form.CLASS, False),
        _factory("delegraph.quantizers", "quantizer", "QuantizerFactory", "Quantizer"),
        _factory("delegraph.passes", "graph_pass", "PassFactory"),
        PluginGroup("delegraph.pass_adapters", "graph_pass", "PassAdapter", Form.FUNCTION, torch_free=False),
        _factory("delegraph.stages", "pipeline", "StageFactory", "PipelineStage"),
        _factory("delegraph.dialect_rules", "pipeline", "DialectRuleFactory", "DialectRule"),
        PluginGroup("delegraph.memory_planners", "memory_planner", "MemoryPlanner", Form.FUNCTION, torch_free=True),
        _implemented("delegraph.backends", "backend", "BackendInterface", Form.INSTANCE, True),
        _implemented("delegraph.kernels", "kernel", "KernelLibraryInterface", Form.INSTANCE, True, "KernelLibrary"),
        PluginGroup("delegraph.platforms", "platform", "PlatformFactory", Form.FUNCTION, torch_free=True),
        PluginGroup("delegraph.data_loaders", "data_loader", "DataLoaderFactory", Form.FUNCTION, torch_free=True),
        PluginGroup("delegraph.conformance_kits", "conformance_kit", "ConformanceKit", Form.FUNCTION, torch_free=True),
        PluginGroup("delegraph.plugins", "tool", "ToolHooks", Form.INSTANCE, torch_free=True),
    )
}


@cache
def group_named(name: str) -> PluginGroup:
    """The group called `name`, with or without `delegraph.`. Raises `PluginNotFound`."""
    group = GROUPS.get(name) or GROUPS.get(f"delegraph.{name}")
    if group is None:
        from delegraph.errors import PluginNotFound

        raise PluginNotFound(f"there is no entry-point group {name!r}; the groups are {', '.join(GROUPS)}")
    return group
