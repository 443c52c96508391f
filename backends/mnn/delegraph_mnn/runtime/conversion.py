"""A blob's ONNX graph and its weights -> MNN's graph, in a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from delegraph.interfaces import Buffer
from delegraph_cpu.runtime.onnx_files import onnx_files
from delegraph_mnn.engine import converted
from delegraph_mnn.runtime.float_weights import with_float_weights

__all__ = ["MODEL", "convert_into"]

MODEL: Final = "model.mnn"
"""The name of the file with MNN's graph."""


def convert_into(folder: Path, graph: Buffer, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write MNN's graph into `folder`. Raises `DelegateInvalidCompatibility` for an ONNX graph that lowering does not
    write, and what `delegraph_mnn.engine.converted` raises."""
    with tempfile.TemporaryDirectory(prefix="delegraph-mnn-") as beside:
        for name, pieces in onnx_files("model", *with_float_weights(graph, weights)).items():
            with Path(beside, name).open("wb") as file:
                file.writelines(pieces)
        converted(Path(beside, "model.onnx"), folder / MODEL)
