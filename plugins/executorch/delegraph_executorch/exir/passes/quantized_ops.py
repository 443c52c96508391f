"""`quantized_decomposed::embedding_*` and `add`: operators that compute on quantized tensors, defined for AOT.

The names, schemas and packed layouts are those of ExecuTorch's runtime operators (`exir/passes/`
`_quant_patterns_and_replacements.py`), of which the portable library has kernels. Where ExecuTorch's wheel is
installed too, its registration is the one that stands.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.ao.quantization.fx._decomposed import quantized_decomposed_lib

from delegraph_executorch.wheel import let_wheel_define_operators

__all__ = ["pack_embedding_weight", "quantized_decomposed_lib"]

_EMBEDDING: Final = (
    "(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max,"
    " Tensor indices"
)
_SIDE: Final = "float {0}_scale, int {0}_zero_point, int {0}_quant_min, int {0}_quant_max"
_ADD: Final = f"(Tensor a, {_SIDE.format('a')}, Tensor b, {_SIDE.format('b')}, {_SIDE.format('out')}"

BITS: Final = {"embedding_byte": 8, "embedding_4bit": 4, "embedding_2bit": 2}


def _unpack(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Packed bytes -> signed values, one each."""
    if bits == 8:
        return weight
    shifts = [4, 0] if bits == 4 else [0, 2, 4, 6]
    bytes_ = weight.view(torch.uint8)
    values: list[torch.Tensor] = [(bytes_ >> shift) & (2**bits - 1) for shift in shifts]
    unpacked: torch.Tensor = torch.stack(values, -1).flatten(1).to(torch.int8) - 2 ** (bits - 1)
    return unpacked


def pack_embedding_weight(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Signed values of 2 or 4 bits -> bytes of 4 or 2 of them, as the kernels read them."""
    if bits == 8:
        return weight
    shifts = [4, 0] if bits == 4 else [0, 2, 4, 6]
    raised = (weight + 2 ** (bits - 1)).to(torch.uint8).unflatten(1, (-1, len(shifts)))
    packed: torch.Tensor = torch.stack([raised[..., i] << s for i, s in enumerate(shifts)]).sum(0, dtype=torch.uint8)
    return packed


def _embedding(bits: int) -> Any:
    def embedding(
        weight: torch.Tensor,
        weight_scales: torch.Tensor,
        weight_zero_points: torch.Tensor | None,
        weight_quant_min: int,
        weight_quant_max: int,
        indices: torch.Tensor,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        scales = weight_scales.unsqueeze(1) if weight_scales.dim() == 1 else weight_scales
        values = _unpack(weight, bits).to(scales.dtype).unflatten(1, (scales.shape[1], -1))
        if weight_zero_points is not None:
            values = values - weight_zero_points.to(scales.dtype).reshape(scales.shape).unsqueeze(-1)
        rows = (values * scales.unsqueeze(-1)).flatten(1)
        return torch.nn.functional.embedding(indices, rows).to(dtype or scales.dtype)

    return embedding


def _add(a: torch.Tensor, *rest: Any) -> torch.Tensor:
    a_parameters, b, b_parameters, out = rest[:4], rest[4], rest[5:9], rest[9:]
    operators = torch.ops.quantized_decomposed
    total = operators.dequantize_per_tensor(a, *a_parameters, a.dtype) + operators.dequantize_per_tensor(
        b, *b_parameters, b.dtype
    )
    quantized: torch.Tensor = operators.quantize_per_tensor(total, *out, a.dtype)
    return quantized


def _into(function: Any) -> Any:
    def out_variant(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result = function(*args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return out_variant


def _define(name: str, parameters: str, function: Any) -> None:
    keywords = f"{parameters}," if "*" in parameters else f"{parameters}, *,"
    base, _, overload = name.partition(".")
    out_name = f"{base}.{overload}_out" if overload else f"{base}.out"
    for schema, target, implementation in (
        (f"{parameters}) -> Tensor", name, function),
        (f"{keywords} Tensor(a!) out) -> Tensor(a!)", out_name, _into(function)),
    ):
        quantized_decomposed_lib.define(f"{target}{schema}")
        quantized_decomposed_lib.impl(target, implementation, "CompositeExplicitAutograd")


let_wheel_define_operators()
if not hasattr(torch.ops.quantized_decomposed, "embedding_byte"):
    for _name, _bits in BITS.items():
        _define(_name, _EMBEDDING, _embedding(_bits))
        _define(f"{_name}.dtype", f"{_EMBEDDING}, *, ScalarType? dtype=None", _embedding(_bits))
if not hasattr(torch.ops.quantized_decomposed, "add"):
    _define("add", _ADD, _add)
elif not torch._C._dispatch_has_computed_kernel_for_dispatch_key("quantized_decomposed::add", "CPU"):
    quantized_decomposed_lib.impl(
        "add", _add, "CompositeExplicitAutograd"
    )  # which the wheel defines by its schema alone
