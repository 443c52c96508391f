"""The hooks of a tool, which wrap calls to backends and watch lowering and loading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from delegraph.interfaces.backend import BackendInterface
from delegraph.interfaces.lowering import BackendDetails

__all__ = ["WRAPPABLE", "ToolHooks"]

WRAPPABLE: Final[Mapping[str, type]] = {
    "preprocess": BackendDetails,
    "preprocess_multimethod": BackendDetails,
    "init": BackendInterface,
    "execute": BackendInterface,
    "submit": BackendInterface,
    "destroy": BackendInterface,
}
"""The hooks that a tool may surround, and the class that defines the meaning and parameters of each."""


class ToolHooks:
    """`delegraph.plugins`: a tool is a module, or a class that takes no arguments, of functions marked with
    `@delegraph.plugins.hookimpl`, each taking those of its hook's parameters that it needs, in any order.

    The methods below are *events*: a tool's return value is dropped, and if it raises, that is reported as a
    `PluginWarning` and goes no further.

    The hooks of `WRAPPABLE` may only be *wrapped*: `@hookimpl(wrapper=True)` on a generator that yields once, where it
    gets the result, and returns the result. Besides the hook's own parameters a wrapper may take `plugin`, the `Offer`
    (`delegraph.plugins.Offer`) of the plug-in concerned. A wrapper of `execute` runs at every execution, and costs
    a few microseconds.
    """

    def lowering_stage_done(self, stage: str, method: str, seconds: float) -> None:
        """A stage of lowering (export, edge, …) has finished for `method`."""

    def partition_done(self, report: Any) -> None:
        """Partitioning has finished; `report` says which node went where, and why the rest stayed."""

    def program_loaded(self, program: Any) -> None:
        """A `.pte` was opened."""

    def method_loaded(self, method: Any) -> None:
        """A method was loaded: memory allocated, instructions bound."""
