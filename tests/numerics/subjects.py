"""The plug-ins of this repository whose numbers are swept, and where the sweep leaves its cells."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from delegraph_testkit.subject import Kind, Subject, subjects_called

__all__ = ["FOLDER", "PLUGINS", "SWEPT", "chosen", "subject_called"]

FOLDER: Final = Path(__file__).parents[2] / "build" / "numerics"

PLUGINS: Final = ("cpu", "openvino", "mnn", "npu", "dsp", "portable", "special", "aten")
SWEPT: Final = ("cpu", "openvino", "mnn", "qnn", "webgpu", *PLUGINS[3:])
"""All that the page has: `qnn` and `webgpu` need packages beside .venv, and are swept when they are named."""


@cache
def subject_called(name: str) -> Subject:
    """The backend or kernel library of that name."""
    (found,) = (s for s in subjects_called(name) if s.kind in (Kind.BACKEND, Kind.KERNELS))
    return found


def chosen() -> list[Subject]:
    """Those that `NUMERICS` names, all without it: a sweep of all takes hours, and may be made in parts."""
    return [subject_called(name) for name in os.environ.get("NUMERICS", "").split() or PLUGINS]
