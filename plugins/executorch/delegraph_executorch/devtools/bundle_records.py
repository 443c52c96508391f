"""ExecuTorch's `executorch.devtools.bundled_program.schema`: a `.bpte` as plain dataclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delegraph_executorch.exir.schema import Bool, Int
from delegraph_executorch.table_records import table_records

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:
    globals().update(table_records(b"BP08", __name__, classes={"Bool": Bool, "Int": Int}, unions={"val": "ValueUnion"}))
