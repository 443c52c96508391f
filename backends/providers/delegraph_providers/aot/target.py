"""The capabilities of Qualcomm's HTP, for converters to ONNX; and the table that the partitioner asks first."""

from __future__ import annotations

from typing import Final

import torch

from delegraph_onnx.converters import TargetTable
from delegraph_onnx.target import ANY, Target
from delegraph_providers.providers import QNN

__all__ = ["HTP", "TABLE"]

HTP: Final = Target(
    QNN.backend_id,
    producer="delegraph-providers",
    opset=21,  # from which on QuantizeLinear has 16 bits
    dtypes=frozenset(
        {
            *(torch.float32, torch.float16, torch.int32, torch.int64, torch.bool),
            *(torch.uint8, torch.int8, torch.uint16, torch.int16),
        }
    ),
    lacks={"Attention": ANY, "RotaryEmbedding": ANY, "RMSNormalization": ANY},
    unsigned=frozenset({torch.int8, torch.int16}),
    dynamic=False,
    linear_by_rows=True,  # of integers the processor has no MatMul and Add in one
    slow_subnormals=False,
    exact_max_pool=True,  # of NaN, which the processor drops, its README says
    recurrent_nan=True,
    loops=False,
)

TABLE: Final = TargetTable(HTP)
