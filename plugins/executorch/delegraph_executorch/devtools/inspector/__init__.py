"""ExecuTorch's `executorch.devtools.inspector`: where the time of a run went, and where its values left the model's."""

from __future__ import annotations

from delegraph_executorch.devtools.inspector._inspector import Event, EventBlock, Inspector, PerfData
from delegraph_executorch.devtools.inspector._inspector_utils import TimeScale, compare_results
from delegraph_executorch.devtools.inspector.vgf_neural_statistics import (
    parse_vgf_neural_statistics_delegate_metadata,
    parse_vgf_neural_statistics_metadata,
)

__all__ = [
    "Event",
    "EventBlock",
    "Inspector",
    "PerfData",
    "TimeScale",
    "compare_results",
    "parse_vgf_neural_statistics_delegate_metadata",
    "parse_vgf_neural_statistics_metadata",
]
