"""What the object behind an entry point must offer: one class of hooks per entry-point group, and the table of groups.

A method here is a *hook*: its name, its parameters in order, and what it means. An object fits its group when it has
every hook and can be called with those parameters by position; it may call them otherwise, and have more where they
have defaults. Derive from the named base class and every hook that you do not need is already there.

    group                       object                                          base class
    delegraph.partitioners      a factory: `PartitionerHooks.partitioner`       its product: aot.partition.Partitioner
    delegraph.lowerings         a class: `LoweringHooks`                        aot.backend.BackendDetails
    delegraph.quantizers        a factory: `QuantizerHooks.quantizer`
    delegraph.passes            a factory: `PassHooks.graph_pass`
    delegraph.memory_planners   a function: `MemoryPlannerHooks.memory_planner`
    delegraph.backends          a class, made once a process: `BackendHooks`    runtime.backends.BackendInterface
    delegraph.kernels           an object: `KernelLibraryHooks`                 runtime.kernels.KernelLibrary
    delegraph.plugins           a tool: `ToolHooks`, functions marked with `@delegraph.plugins.hookimpl`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from delegraph.aot.delegation.backend_details import PreprocessResult
    from delegraph.aot.delegation.partition import Partitioner, PartitionResult
    from delegraph.aot.emission.planners import Lifetime, Plan
    from delegraph.plugins.discovery import Offer
    from delegraph.plugins.stamp import BlobStamp
    from delegraph.program.schema import Buffer, CompileSpec
    from delegraph.runtime.backends import (
        Argument,
        Availability,
        BackendExecutionContext,
        BackendInitContext,
        Compatibility,
        Handle,
    )
    from delegraph.runtime.kernels import Kernel, KernelKey

__all__ = [
    "GROUPS",
    "BackendHooks",
    "Form",
    "Group",
    "KernelLibraryHooks",
    "LoweringHooks",
    "MemoryPlannerHooks",
    "PartitionerHooks",
    "PassHooks",
    "QuantizerHooks",
    "ToolHooks",
    "group_named",
]

Options = Mapping[str, Any]
"""What a user wrote beside the plug-in's name; empty if nothing."""


class PartitionerHooks:
    """`delegraph.partitioners`: its name is what users write in `backends=[…]`."""

    def partitioner(self, options: Options) -> Partitioner:
        """Make a partitioner. Raises `ValueError` or `TypeError` for options that it does not have."""
        raise NotImplementedError


class PartitionerObjectHooks:
    """What a factory of `delegraph.partitioners` makes; the meaning: `delegraph.aot.Partitioner`."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes to delegate."""
        raise NotImplementedError

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Callable[[Any], bool] | None]:
        """Operators to keep whole for this partitioner."""
        raise NotImplementedError


class LoweringHooks:
    """`delegraph.lowerings`: compiles partitions ahead of time; its name is the backend id in the `.pte`."""

    def preprocess(self, edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile one partition."""
        raise NotImplementedError

    def preprocess_multimethod(
        self,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """Compile every partition of every method at once."""
        raise NotImplementedError


class QuantizerHooks:
    """`delegraph.quantizers`: its name is the quantisation strategy's."""

    def quantizer(self, options: Options) -> object:
        """Make a quantizer: an object with `annotate(model)` and `validate(model)`, as torchao's `Quantizer`."""
        raise NotImplementedError


class PassHooks:
    """`delegraph.passes`: its name is the pass's, as a pipeline names it."""

    def graph_pass(self, options: Options) -> Callable[..., object]:
        """Make a pass over an exported program."""
        raise NotImplementedError


class MemoryPlannerHooks:
    """`delegraph.memory_planners`: places a method's tensors in memory. Torch-free."""

    def memory_planner(self, lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
        """Give every tensor a place, a multiple of `alignment` bytes, in its memory."""
        raise NotImplementedError


class BackendHooks:
    """`delegraph.backends`: runs blobs; its name is the backend id in the `.pte`. Torch-free.

    The meaning of each hook: `delegraph.runtime.backends.BackendInterface`.
    """

    def is_available(self) -> Availability | bool:
        """Whether the device can be used now, and if not why. Cheap; never raises."""
        raise NotImplementedError

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        """Judge a blob by its stamp, before `init` sees a byte of it."""
        raise NotImplementedError

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Handle:
        """Make a delegate of the blob."""
        raise NotImplementedError

    def execute(self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> None:
        """Run once; fills the outputs among `args` in place."""
        raise NotImplementedError

    def bind(
        self, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """A call equivalent to `execute` with everything already in it, or None."""
        raise NotImplementedError

    def destroy(self, handle: Handle) -> None:
        """Release what `init` acquired."""
        raise NotImplementedError

    def set_option(self, options: Mapping[str, bool | int | str]) -> None:
        """Change options of the backend as a whole."""
        raise NotImplementedError

    def get_option(self, keys: Sequence[str]) -> dict[str, bool | int | str]:
        """Current values of `keys`."""
        raise NotImplementedError


class KernelLibraryHooks:
    """`delegraph.kernels`: a named set of kernels. Torch-free, unless it is torch's kernels that it offers."""

    def lookup(self, op: str, key: KernelKey) -> Kernel | None:
        """The kernel of exactly `key`, else the fallback, else None."""
        raise NotImplementedError

    def operator_names(self) -> frozenset[str]:
        """Every operator that this library has some kernel for."""
        raise NotImplementedError


class ToolHooks:
    """`delegraph.plugins`: tools that wrap what backends do, or watch lowering and loading.

    A tool is a module, or a class that takes no arguments, of functions marked with `@delegraph.plugins.hookimpl`. Each
    takes those of the parameters below that it needs, in any order. `plugin` is the `Offer` of the plug-in concerned.

    `preprocess`, `preprocess_multimethod`, `init`, `execute` and `destroy` may only be *wrapped*
    (`@hookimpl(wrapper=True)`, a generator that yields once and returns the result). The others are events: what
    they return is dropped, and if one raises, that is reported as a `PluginWarning` and goes no further.
    """

    def preprocess(self, plugin: Offer, edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> Any:
        """Around a backend's `preprocess`."""

    def preprocess_multimethod(
        self,
        plugin: Offer,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> Any:
        """Around a backend's `preprocess_multimethod`."""

    def init(
        self, plugin: Offer, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]
    ) -> Any:
        """Around a backend's `init`: once per delegate, at load."""

    def execute(self, plugin: Offer, context: BackendExecutionContext, handle: Handle, args: Sequence[Argument]) -> Any:
        """Around a backend's `execute`: at every execution; costs a few microseconds."""

    def destroy(self, plugin: Offer, handle: Handle) -> Any:
        """Around a backend's `destroy`."""

    def lowering_stage_done(self, stage: str, method: str, seconds: float) -> None:
        """A stage of lowering (export, edge, partition, …) has finished for `method`."""

    def partition_done(self, report: Any) -> None:
        """Partitioning has finished; `report` says which node went where, and why the rest stayed."""

    def program_loaded(self, program: Any) -> None:
        """A `.pte` was opened."""

    def method_loaded(self, method: Any) -> None:
        """A method was loaded: memory allocated, instructions bound."""


class Form(Enum):
    """What an entry point's object is used as."""

    FACTORY = "a callable that makes something of options"
    FUNCTION = "a callable"
    CLASS = "a class, used as it is"
    INSTANCE = "an object; a class is instantiated, once"


@dataclass(frozen=True, slots=True)
class Group:
    """One entry-point group. In a `torch_free` one, loading a plug-in must not bring torch into the process."""

    name: str
    hooks: type
    form: Form
    torch_free: bool
    base: str = ""
    product: Group | None = None
    """What a factory's result must offer, where that is fixed."""

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The hooks in the order in which they stand in the class."""
        return tuple(name for name in vars(self.hooks) if not name.startswith("_"))


_PARTITIONER = Group(
    "delegraph.partitioners",
    PartitionerObjectHooks,
    Form.INSTANCE,
    False,
    "delegraph.aot.Partitioner",
)

GROUPS: Final[Mapping[str, Group]] = {
    group.name: group
    for group in (
        Group("delegraph.partitioners", PartitionerHooks, Form.FACTORY, torch_free=False, product=_PARTITIONER),
        Group(
            "delegraph.lowerings",
            LoweringHooks,
            Form.CLASS,
            False,
            "delegraph.aot.BackendDetails",
        ),
        Group("delegraph.quantizers", QuantizerHooks, Form.FACTORY, torch_free=False),
        Group("delegraph.passes", PassHooks, Form.FACTORY, torch_free=False),
        Group("delegraph.memory_planners", MemoryPlannerHooks, Form.FUNCTION, torch_free=True),
        Group("delegraph.backends", BackendHooks, Form.INSTANCE, True, "delegraph.runtime.backends.BackendInterface"),
        Group("delegraph.kernels", KernelLibraryHooks, Form.INSTANCE, True, "delegraph.runtime.kernels.KernelLibrary"),
        Group("delegraph.plugins", ToolHooks, Form.INSTANCE, torch_free=True),
    )
}


@cache
def group_named(name: str) -> Group:
    """The group called `name`, with or without `delegraph.`. Raises `PluginNotFound`."""
    group = GROUPS.get(name) or GROUPS.get(f"delegraph.{name}")
    if group is None:
        from delegraph.errors import PluginNotFound

        raise PluginNotFound(f"there is no entry-point group {name!r}; the groups are {', '.join(GROUPS)}")
    return group
