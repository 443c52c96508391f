"""onnxruntime without its telemetry: whoever needs onnxruntime in this package imports it from here.

Official builds of onnxruntime 1.29 and newer write what sessions they make, with names and digests of graphs, to a
database below ~/.cache/Microsoft, and a thread of theirs sends it to Microsoft. `ORT_DISABLE_TELEMETRY` (onnxruntime's
`docs/Privacy.md`) is read when it is imported, and is set for that long; a value that is set already stays. Who
imported onnxruntime before has chosen already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["onnxruntime", "ort"]

_DISABLE: Final = "ORT_DISABLE_TELEMETRY"


@contextmanager
def _without_telemetry() -> Iterator[None]:
    if _DISABLE in os.environ:
        yield
        return
    os.environ[_DISABLE] = "1"
    try:
        yield
    finally:
        del os.environ[_DISABLE]


with _without_telemetry():
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as ort
