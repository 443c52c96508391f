"""OpenVINO on its own conversion of the model; int8 and 4 bits by NNCF."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino


def prepare(peer: str, precision: str, model: Any, data: Any, folder: Path) -> float:
    """Write the model; returns the seconds that quantizing took."""
    import torch

    with torch.no_grad():
        converted = openvino.convert_model(model, example_input=data[0], input=[x.shape for x in data[0]])
    start = time.perf_counter()
    if precision not in ("float32", "bfloat16"):
        converted = _quantized(converted, precision, data)
    calibration = time.perf_counter() - start
    openvino.save_model(converted, folder / "model.xml", compress_to_fp16=False)
    return calibration


def _quantized(converted: Any, precision: str, data: Any) -> Any:
    import nncf

    if precision == "int8":
        batches = nncf.Dataset([[x.numpy() for x in batch] for batch in data])
        return nncf.quantize(converted, batches, subset_size=len(data))
    if precision == "int8_dynamic":  # values are quantized as it runs, see `load`
        return nncf.compress_weights(converted, mode=nncf.CompressWeightsMode.INT8_SYM)
    adjust = nncf.AdvancedCompressionParameters(group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST)
    return nncf.compress_weights(
        converted, mode=nncf.CompressWeightsMode.INT4_SYM, group_size=32, all_layers=True, ratio=1.0,
        advanced_parameters=adjust,
    )  # fmt: skip


def load(peer: str, precision: str, folder: Path, arrays: list[Any], threads: int) -> Callable[[], Any]:
    """A call that gives the first output. It computes in bfloat16 by itself where the machine has it, if not told."""
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32",
    }
    if precision == "int8_dynamic":
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 32
    request = openvino.Core().compile_model(folder / "model.xml", "CPU", config).create_infer_request()

    def call() -> Any:
        return request.infer(arrays, share_inputs=True)[0]

    return call
