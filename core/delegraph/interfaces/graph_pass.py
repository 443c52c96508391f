"""The interface of passes, which edit a graph in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from delegraph.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

__all__ = ["Dialect", "ExportedProgramPassBase", "ExportedProgramPassResult", "GraphPass", "PassAdapter", "PassFactory"]


class Dialect(Protocol):
    """A name and the rules that its nodes obey: one of those in `delegraph.aot.edge.dialects`."""

    @property
    def name(self) -> str:
        """The pass's name in messages."""

    @property
    def rules(self) -> tuple[Callable[[Node, Collection[OpOverload]], str | None], ...]:
        """(node, operators that were kept whole on purpose) -> the violation, or None."""


@dataclass(frozen=True, slots=True)
class ExportedProgramPassResult:
    """The program after a pass, and whether it differs from the one before."""

    exported_program: ExportedProgram
    modified: bool


class ExportedProgramPassBase(ABC):
    """A pass that needs more than a graph: signature or weights (ExecuTorch `exir/pass_base.py`).

    The pipeline checks `required_dialect` before it and `ensured_dialect` after it (None: nothing beyond its own).
    """

    required_dialect: Dialect | None = None
    ensured_dialect: Dialect | None = None

    def __call__(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Run the pass on `exported_program`, whose graphs it may edit: it takes the program over."""
        self.requires(exported_program)
        result = self.call(exported_program)
        if isinstance(result, ExportedProgramPassResult):  # whoever runs passes refuses anything else
            self.ensures(result.exported_program)
        return result

    @abstractmethod
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """The program after the pass: the one given, edited, or one made from it. New nodes carry `meta["val"]`."""

    def requires(self, exported_program: ExportedProgram) -> None:
        """Raise if the pass cannot run on `exported_program`."""

    def ensures(self, exported_program: ExportedProgram) -> None:
        """Raise if `exported_program`, the pass's result, is not as the pass promises."""


GraphPass: TypeAlias = "Callable[[GraphModule], Any] | ExportedProgramPassBase"
"""Any callable that edits a graph module and returns None, a module, or an object with a `graph_module` (torch's
`PassResult`; an `ExportPass` is one), or an `ExportedProgramPassBase`."""


class PassFactory(Protocol):
    """The factory behind a `delegraph.passes` entry point, whose name is the pass's, as a pipeline names it."""

    def __call__(self, options: Mapping[str, Any], /) -> GraphPass:
        """Make a pass. As with `PartitionerFactory`, options may be keyword parameters."""


class PassAdapter(Protocol):
    """The function behind a `delegraph.pass_adapters` entry point, whose name is a Python package's: it makes passes
    that are functions of that package, or of its classes, or derived from them, usable in `transform_passes=[…]`."""

    def __call__(self, graph_pass: Any, /) -> GraphPass:
        """The pass that stands for `graph_pass`."""
