"""A delegate's options, set when it is lowered or loaded -> the configuration of a session of MNN's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec, DelegateOptions
from delegraph.lazy_dataclass import dataclass
from delegraph_mnn.blob import BACKEND_ID

__all__ = ["MnnOptions"]

_PRECISIONS: Final = {"f32": "normal", "f16": "low"}
_MOST_THREADS: Final = 4
"""As many as MNN takes by itself: phones have at most four fast cores."""


_AT_LOAD: Final = frozenset({"profiling", "intermediate_outputs"})


@dataclass(frozen=True, slots=True)
class MnnOptions(DelegateOptions):
    """Options of one delegate.

    num_threads: threads that compute; 0: one for each processor that the process may use, 4 at most.
    precision: what a float32 model is computed in: "f32", or "f16", which MNN does where the processor has it (ARMv8.2
        and later), and leaves at float32 elsewhere.
    profiling: whether a tracer is told the time of each of MNN's operations. At load only.
    intermediate_outputs: whether it is told the value of each node of the ONNX graph, in place of its time: MNN fuses
        no node then. At load only.
    """

    backend_id: ClassVar[str] = BACKEND_ID
    num_threads: int = 0
    precision: str = "f32"
    profiling: bool = False
    intermediate_outputs: bool = False

    def __post_init__(self) -> None:
        for name, holds, admitted in (
            ("num_threads", type(self.num_threads) is int and 0 <= self.num_threads <= 64, "0 to 64"),
            ("precision", self.precision in _PRECISIONS, " or ".join(_PRECISIONS)),
            ("profiling", isinstance(self.profiling, bool), "true or false"),
            ("intermediate_outputs", isinstance(self.intermediate_outputs, bool), "true or false"),
        ):
            if not holds:
                raise InvalidArgument(f"{BACKEND_ID}: {name} is {getattr(self, name)!r:.40}; it may be {admitted}")

    @classmethod
    def of_compile_specs(cls, specs: Sequence[CompileSpec]) -> MnnOptions:
        """The options of a delegate's compile specs."""
        named: dict[str, Any] = {}
        for spec in specs:
            text = bytes(spec.value).decode(errors="replace")
            named[spec.key] = int(text) if text.isdecimal() else text
        return cls(**{name: value for name, value in named.items() if name in cls.names() - _AT_LOAD})

    def compile_specs(self) -> list[CompileSpec]:
        """The options, as a delegate keeps them."""
        return [CompileSpec(key, str(value).encode()) for key, value in asdict(self).items() if key not in _AT_LOAD]

    def session(self) -> dict[str, Any]:
        """The configuration of a session (`ScheduleConfig` and `BackendConfig` of MNN's documentation)."""
        return {
            "backend": "CPU",
            "numThread": self.num_threads or min(_processors(), _MOST_THREADS),
            "precision": _PRECISIONS[self.precision],
        }


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
