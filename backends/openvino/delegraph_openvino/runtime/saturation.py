"""OpenVINO's CPU device -> whether its products of integers can be trusted.

On x86 processors without VNNI a product of uint8 and int8 adds pairs in 16 bits, which hold 255 * 127 once but not
twice: sums are cut off, and results are tenths of the signal off. NNCF halves the weights' range for that when it
quantizes (its "overflow fix"), which costs all other processors a bit; here it is decided where a model runs.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from delegraph_openvino.engine import openvino, opset13

__all__ = ["IN_FLOAT", "products_saturate"]

IN_FLOAT: Final = {"LP_TRANSFORMS_MODE": "NO", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""OpenVINO's properties of its CPU device that leave products of integers in float32, rounded as they are."""

_SIZE: Final = 64


@cache
def products_saturate(core: openvino.Core) -> bool:
    """Whether the CPU device's sums of uint8 * int8 saturate at 16 bits.

    Decided by a multiplication: each operating system describes a processor in another way.
    """
    compiled = core.compile_model(_product(), "CPU", {"INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"})
    (result,) = compiled({0: np.full((_SIZE, _SIZE), 255, np.float32)}).values()
    return bool((result != _SIZE * 255 * 127).any())


def _product() -> openvino.Model:
    """`x @ w` on integers: x is rounded to 0 to 255, and w is 127 everywhere."""
    x = opset13.parameter([_SIZE, _SIZE], np.float32)
    ends = np.float32(0), np.float32(255)
    rounded = opset13.fake_quantize(x, *ends, *ends, 256)
    weight = opset13.convert(opset13.constant(np.full((_SIZE, _SIZE), 127, np.int8)), np.float32)
    scaled = opset13.multiply(weight, np.ones((_SIZE, 1), np.float32))
    return openvino.Model([opset13.matmul(rounded, scaled, False, True)], [x], "product")
