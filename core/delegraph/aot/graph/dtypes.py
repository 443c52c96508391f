"""torch dtype -> its row in the table of element types (`delegraph.program.dtypes`)."""

from __future__ import annotations

from typing import Final

import torch

from delegraph.errors import LoweringError
from delegraph.program.dtypes import DTYPES, DtypeInfo
from delegraph.program.schema import ScalarType

__all__ = ["scalar_type_of", "short_name"]

_OF_TORCH: Final[dict[torch.dtype, DtypeInfo]] = {getattr(torch, info.name): info for info in DTYPES}


def scalar_type_of(dtype: torch.dtype) -> ScalarType:
    """The code of a torch dtype. Raises `LoweringError` for one that a program file cannot hold."""
    info = _OF_TORCH.get(dtype)
    if info is None or info.numpy is None:
        raise LoweringError(f"{dtype} tensors cannot stand in a program; cast them to a plain dtype before export")
    return info.code


def short_name(dtype: torch.dtype) -> str:
    """`f32`, `bf16`, `i64`: as graphs are printed."""
    info = _OF_TORCH.get(dtype)
    return info.short if info is not None else str(dtype).removeprefix("torch.")
