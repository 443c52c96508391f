"""Proves plug-ins of Delegraph: backends, kernel libraries, partitioners, quantizers, passes, memory planners, tools.

conformance.py    what an author's test module derives from      command.py   `delegraph plugins check NAME --run`
claims.py         what an author claims                          subject.py   what is to be proven
checks.py         the checks of each kind, by level              outcomes.py  what comes of one
session.py        runs checks in processes (process.py, worker.py, no_torch.py) on stored programs (bench.py)
models.py         the kit's models; lowering.py lowers them, running.py runs them, watching.py looks at what a
                  backend does meanwhile; arrays.py compares
*_checks.py       the checks
numerics/         every operator in every dtype on operands from the edges (`python -m delegraph_testkit.numerics`)
report.py         Markdown, JSON, badge
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegraph_testkit.claims import Claims
    from delegraph_testkit.conformance import (
        BackendConformance,
        KernelsConformance,
        MemoryPlannerConformance,
        PartitionerConformance,
        PassConformance,
        QuantizerConformance,
        ToolConformance,
    )

__all__ = [
    "BackendConformance",
    "Claims",
    "KernelsConformance",
    "MemoryPlannerConformance",
    "PartitionerConformance",
    "PassConformance",
    "QuantizerConformance",
    "ToolConformance",
]


def __getattr__(name: str) -> Any:
    """Imported when it is used: pytest imports this package wherever it is installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "claims" if name == "Claims" else "conformance"
    return getattr(import_module(f"{__name__}.{module}"), name)
