"""ExecuTorch's `executorch.devtools.etrecord._etrecord`."""

from __future__ import annotations

from typing import Any

from delegraph.aot import ETRecord, ETRecordReservedFileNames, generate_etrecord, parse_etrecord

__all__ = ["ETRecord", "ETRecordReservedFileNames", "generate_etrecord", "parse_etrecord"]


def _get_reference_outputs(bundled_program: Any) -> Any:
    """The expected outputs of each case, by method. Raises `ValueError` for a case without."""
    record = ETRecord()
    record.update_reference_outputs(bundled_program)
    return record._reference_outputs


def _get_representative_inputs(bundled_program: Any) -> Any:
    """The inputs of the first case of `forward`, None without that. Raises `ValueError` for a method without cases."""
    record = ETRecord()
    record.update_representative_inputs(bundled_program)
    return record._representative_inputs
