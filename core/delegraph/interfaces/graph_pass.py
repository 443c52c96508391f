"""A graph, edited in place: what a pass is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node
    from torch.fx.passes.infra.pass_base import PassResult

__all__ = ["Dialect", "ExportPass", "GraphPass", "PassFactory", "ProgramPass"]


class Dialect(Protocol):
    """A name and the rules that its nodes obey: one of those in `delegraph.aot.edge.dialects`."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def rules(self) -> tuple[Callable[[Node, Collection[OpOverload]], str | None], ...]:
        """(node, operators that were kept whole on purpose) -> what is wrong, or None."""


class ExportPass(ABC):
    """A pass with a name. `requires` is checked before it, `ensures` after it (None: nothing beyond the pipeline's)."""

    requires: Dialect | None = None
    ensures: Dialect | None = None

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Run the pass on `graph_module`, in place."""
        return self.call(graph_module)

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult:
        """Edit the graph; return `PassResult(graph_module, modified)`. New nodes carry `meta["val"]`."""


class ProgramPass(ABC):
    """A pass that needs more than a graph: signature or weights. `requires` and `ensures` as for `ExportPass`."""

    requires: Dialect | None = None
    ensures: Dialect | None = None

    def __call__(self, program: ExportedProgram) -> ExportedProgram:
        """Run the pass on `program`, whose graphs it may edit: it takes the program over."""
        return self.call(program)

    @abstractmethod
    def call(self, program: ExportedProgram) -> ExportedProgram:
        """The program after the pass: `program` itself, edited, or one made from it. New nodes carry `meta["val"]`."""


GraphPass: TypeAlias = "Callable[[GraphModule], Any] | ProgramPass"
"""An `ExportPass` or `ProgramPass`, or any callable that edits a graph module and returns None, a module, or what has a
`graph_module` (ExecuTorch's and torch's `PassResult`)."""


class PassFactory(Protocol):
    """What stands behind a `delegraph.passes` entry point, whose name is the pass's, as a pipeline names it."""

    def __call__(self, options: Mapping[str, Any], /) -> GraphPass:
        """Make a pass. As with `PartitionerFactory`, options may be keyword parameters."""
