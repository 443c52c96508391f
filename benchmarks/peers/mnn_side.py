"""MNN on its own conversion of torch's ONNX export."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def prepare(peer: str, precision: str, model: Any, data: Any, folder: Path) -> float:
    """Write `model.mnn`, and the names of its inputs; returns 0 seconds of quantizing."""
    import _tools
    import torch

    exported = folder / "float32.onnx"
    names = [f"input_{place}" for place in range(len(data[0]))]
    torch.onnx.export(
        model, data[0], exported, dynamo=False, external_data=False, verbose=False,
        input_names=names, output_names=["output"],
    )  # fmt: skip
    arguments = {"-f": "ONNX", "--modelFile": exported, "--MNNModel": folder / "model.mnn", "--bizCode": "peer"}
    _tools.mnnconvert(["mnnconvert", *(str(word) for pair in arguments.items() for word in pair)])
    exported.unlink()
    return 0.0


def load(peer: str, precision: str, folder: Path, arrays: list[Any], threads: int) -> Callable[[], Any]:
    """A call that gives the first output."""
    import _mnncengine as mnn

    interpreter = mnn.Interpreter(os.fspath(folder / "model.mnn"))
    session = interpreter.createSession({"backend": "CPU", "numThread": threads, "precision": "normal"})
    inputs = [interpreter.getSessionInput(session, f"input_{place}") for place in range(len(arrays))]
    hosts = [_host(mnn, array.astype(np.float32 if array.dtype.kind == "f" else np.int32)) for array in arrays]
    for tensor, array in zip(inputs, arrays, strict=True):
        interpreter.resizeTensor(tensor, array.shape)
    interpreter.resizeSession(session)
    result = interpreter.getSessionOutput(session, "output")
    into = _host(mnn, np.zeros(result.getShape(), np.float32))

    def call() -> Any:
        for tensor, host in zip(inputs, hosts, strict=True):
            tensor.copyFrom(host)
        interpreter.runSession(session)
        result.copyToHostTensor(into)
        return into.getNumpyData().copy()

    return call


def _host(mnn: Any, array: Any) -> Any:
    kind = mnn.Halide_Type_Float if array.dtype == np.float32 else mnn.Halide_Type_Int
    return mnn.Tensor(array.shape, kind, array, mnn.Tensor_DimensionType_Caffe)
