"""ExecuTorch's `executorch.devtools.etrecord`."""

from __future__ import annotations

from delegraph_executorch.devtools.etrecord._etrecord import ETRecord, generate_etrecord, parse_etrecord

__all__ = ["ETRecord", "generate_etrecord", "parse_etrecord"]
