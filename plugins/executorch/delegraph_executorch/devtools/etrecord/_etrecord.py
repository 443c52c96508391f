"""ExecuTorch's `executorch.devtools.etrecord._etrecord`."""

from __future__ import annotations

from delegraph.aot import ETRecord, ETRecordReservedFileNames, generate_etrecord, parse_etrecord

__all__ = ["ETRecord", "ETRecordReservedFileNames", "generate_etrecord", "parse_etrecord"]
