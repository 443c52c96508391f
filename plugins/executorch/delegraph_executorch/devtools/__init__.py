"""ExecuTorch's `executorch.devtools`."""

from __future__ import annotations

from delegraph_executorch.devtools import inspector
from delegraph_executorch.devtools.bundled_program.core import BundledProgram
from delegraph_executorch.devtools.etrecord import ETRecord, generate_etrecord, parse_etrecord
from delegraph_executorch.devtools.inspector import Inspector

__all__ = ["BundledProgram", "ETRecord", "Inspector", "generate_etrecord", "inspector", "parse_etrecord"]
