"""A stage of lowering, a rule of a dialect: what a plug-in adds to the pipeline, for users to name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from delegraph.interfaces.graph_pass import Dialect

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.fx import Node

__all__ = ["DialectRule", "DialectRuleFactory", "PipelineStage", "StageFactory"]

Value = TypeVar("Value")


class PipelineStage(ABC, Generic[Value]):
    """A step of lowering, run once for all methods: a value to the next one, which is a `delegraph.aot.Lowering`.

    `after` or `before` is its place: the name of a stage of `delegraph.aot.pipeline`, or of one that was named in front
    of it. The programs have to be in `required_dialect` before it and in `ensured_dialect` behind it (None: nothing is
    asked of them).
    """

    after: str = ""
    before: str = ""
    required_dialect: ClassVar[Dialect | None] = None
    ensured_dialect: ClassVar[Dialect | None] = None

    @abstractmethod
    def run(self, lowering: Value) -> Value:
        """The value with what the stage is there for; the one that was handed in stays as it was."""


class StageFactory(Protocol):
    """The object behind a `delegraph.stages` entry point, whose name is the stage's, as dumps and reports have it."""

    def __call__(self, options: Mapping[str, Any], /) -> PipelineStage[Any]:
        """Make a stage. As with `PartitionerFactory`, options may be keyword parameters."""


class DialectRule(ABC):
    """A condition that programs must satisfy from a dialect on: `dialect` is the first that it holds in, "ATen",
    "functional ATen", "core ATen" or "edge"."""

    dialect: str = "edge"

    @abstractmethod
    def check(self, node: Node, kept: Collection[OpOverload]) -> str | None:
        """The reason why a node breaks the rule, or None; `kept` are the operators that stand whole on purpose."""


class DialectRuleFactory(Protocol):
    """The object behind a `delegraph.dialect_rules` entry point, whose name is the rule's."""

    def __call__(self, options: Mapping[str, Any], /) -> DialectRule:
        """Make a rule. As with `PartitionerFactory`, options may be keyword parameters."""
