"""ExecuTorch on XNNPACK, in its own environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def prepare(peer: str, precision: str, model: Any, data: Any, folder: Path) -> float:
    """Write the program; returns the seconds that quantizing took."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    start = time.perf_counter()
    if precision == "int4":
        _pack_four_bits(model)
    exported = torch.export.export(model, data[0], strict=False)
    if precision in ("int8", "int8_dynamic"):
        exported = torch.export.export(_quantized(exported, precision, data), data[0])
    calibration = time.perf_counter() - start if precision != "float32" else 0.0
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    (folder / "model.pte").write_bytes(program.buffer)
    return calibration


def _quantized(exported: Any, precision: str, data: Any) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=precision == "int8_dynamic")
    prepared = prepare_pt2e(exported.module(), XNNPACKQuantizer().set_global(config))
    with torch.no_grad():
        for batch in data:
            prepared(*batch)
    return convert_pt2e(prepared)


def _pack_four_bits(model: Any) -> None:
    """Weights of linear layers in groups of 32, values in 8 bits as it runs: what XNNPACK has a kernel for."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))


def load(peer: str, precision: str, folder: Path, arrays: list[Any], threads: int) -> Callable[[], Any]:
    """A call that gives the first output."""
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(threads)
    program = portable_lib._load_for_executorch(str(folder / "model.pte"))
    args = tuple(torch.from_numpy(x) for x in arrays)

    def call() -> Any:
        return program.run_method("forward", args)[0].numpy()

    return call
