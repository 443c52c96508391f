"""onnxruntime on torch's own ONNX export (TorchScript's or dynamo's), and its own quantization of that."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime


def prepare(peer: str, precision: str, model: Any, data: Any, folder: Path) -> float:
    """Write `model.onnx`; returns the seconds that quantizing took."""
    import torch

    exported, path = folder / "float32.onnx", folder / "model.onnx"
    torch.onnx.export(model, data[0], exported, dynamo=peer.endswith("dynamo"), external_data=False, verbose=False)
    start = time.perf_counter()
    if precision == "float32":
        exported.rename(path)
        return 0.0
    {"int8": static, "int8_dynamic": dynamic, "int4": _four_bits}[precision](exported, path, data)
    exported.unlink()
    return time.perf_counter() - start


def load(peer: str, precision: str, folder: Path, arrays: list[Any], threads: int) -> Callable[[], Any]:
    """A call that gives the first output."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {i.name: x for i, x in zip(session.get_inputs(), arrays, strict=True)}
    return lambda: session.run(None, feeds)[0]


def static(exported: Path, path: Path, data: Any) -> None:
    """Calibrated on the same data; uint8 values and int8 weights by channel, as its documentation advises for x86."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = path.with_name("prepared.onnx")
    quant_pre_process(str(exported), str(prepared))
    names = [i.name for i in onnx.load(exported, load_external_data=False).graph.input]

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime.quantization has no types
        def __init__(self) -> None:
            self.batches = iter([dict(zip(names, (x.numpy() for x in batch), strict=True)) for batch in data])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.batches, None)

    quantize_static(
        str(prepared), str(path), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    prepared.unlink()


def dynamic(exported: Path, path: Path, data: Any) -> None:
    """Weights as int8 by channel; values in each run."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(exported), str(path), weight_type=QuantType.QInt8, per_channel=True)


def _four_bits(exported: Path, path: Path, data: Any) -> None:
    """Weights of matrix products in groups of 32, symmetric."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(exported), block_size=32, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path), False)
