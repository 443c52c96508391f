"""A backend of the kit's own, beside which others are tried: it takes convolutions and linear layers, kept whole.

A blob is a line of JSON, `[operation, numbers, shapes of the constants, which arguments are constants]`, and the
constants' elements as float32.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from delegraph.interfaces import BackendExecutionContext, BackendInitContext, BackendInterface, Buffer, CompileSpec
from delegraph_testkit.arrays import Array

__all__ = ["WHOLE_KEEPER", "WholeKeeper"]

WHOLE_KEEPER = "TestkitWholeKeeper"
"""Its backend id."""


class WholeKeeper(BackendInterface):
    """The half that runs. Its steps are `(operation, numbers, registers that are read, register that is written)`."""

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Any:
        line, _, content = bytes(processed).partition(b"\n")
        inputs, shapes, steps, outputs = json.loads(line)
        constants, offset = {}, 0
        for register, shape in shapes:
            constants[register] = np.frombuffer(content, "<f4", prod(shape), offset).reshape(shape)
            offset += constants[register].nbytes
        return inputs, constants, steps, outputs

    def num_outputs(self, handle: Any) -> int:
        return len(handle[3])

    def execute(self, context: BackendExecutionContext, handle: Any, args: Sequence[Any]) -> None:
        inputs, constants, steps, outputs = handle
        values = {**constants, **dict(zip(inputs, args, strict=False))}
        for operation, numbers, reads, writes in steps:
            operands: list[Any] = [None if register is None else values[register] for register in reads]
            values[writes] = _linear(*operands) if operation == "linear" else _convolution(*operands, *numbers)
        for register, out in zip(outputs, args[len(inputs) :], strict=True):
            context.resize(out, values[register].shape)[...] = values[register]


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    result = x @ weight.T
    return result if bias is None else result + bias


def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    x = np.pad(x, ((0, 0), (0, 0), *((side, side) for side in padding)))
    reach = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    parts = [
        np.einsum("nchwij,ocij->nohw", part, kernel)
        for part, kernel in zip(np.split(windows, groups, 1), np.split(weight, groups), strict=True)
    ]
    result = np.concatenate(parts, 1)
    return result if bias is None else result + bias[:, None, None]
