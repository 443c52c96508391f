"""The option at load by which a simulated device tells a tracer the value of each operator, and the steps that do so.

conv ── conv, its last tile ── relu
                            └─ a step that logs what memory has of conv's result now
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from delegraph.errors import InvalidArgument
from delegraph.interfaces import (
    BackendInitContext,
    BackendInterface,
    DelegateOptions,
    EventTracer,
    OptionValue,
)
from delegraph.lazy_dataclass import dataclass

__all__ = ["MachineBackend", "MachineOptions", "with_logs"]

_Step = TypeVar("_Step")


@dataclass(frozen=True, slots=True)
class MachineOptions(DelegateOptions):
    """Options at load of one delegate; a backend's own class has its `backend_id`.

    intermediate_outputs: whether a tracer is told the value of each operator, beside its time.
    """

    intermediate_outputs: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.intermediate_outputs, bool):
            told = f"intermediate_outputs is {self.intermediate_outputs!r:.40}; it may be true or false"
            raise InvalidArgument(f"{self.backend_id}: {told}")


class MachineBackend(BackendInterface):
    """The runtime half of a simulated device, with `MachineOptions`."""

    def __init__(self, options: MachineOptions) -> None:
        self._options = options

    def set_option(self, options: Mapping[str, OptionValue]) -> None:
        """Change the defaults for delegates loaded from now on."""
        self._options = self._options.updated(options)

    def get_option(self, keys: Sequence[str]) -> dict[str, OptionValue]:
        """The defaults for delegates that are loaded without options of their own."""
        return self._options.chosen(keys)

    def tracer_of_values(self, context: BackendInitContext) -> EventTracer | None:
        """The tracer that a delegate is to tell its values, if it was asked to. Raises `InvalidArgument` for options
        that do not exist."""
        asked = self._options.updated(context.runtime_specs).intermediate_outputs
        return context.event_tracer if asked else None


def with_logs(steps: Sequence[_Step], operators: Sequence[int], logs: Mapping[int, _Step]) -> list[_Step]:
    """`steps`, and behind the last one of each operator its step in `logs`; `operators` are those of the steps."""
    last = {operator: place for place, operator in enumerate(operators)}
    behind = {place: logs[operator] for operator, place in last.items() if operator in logs}
    return [step for place, own in enumerate(steps) for step in (own, behind.get(place)) if step is not None]
