"""The names of the operators that every runtime has built in, so that no kernel library need offer them.

ExecuTorch 1.4.1 registers the 28 prim ops (`kernels/prim_ops/register_prim_ops.cpp`). Copies to and from devices are a
matter of its portable kernels there, and of the runtime here: it alone knows the memories of devices.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BUILT_IN", "D2H_COPY", "DEVICE_COPIES", "ET_COPY_INDEX", "ET_VIEW", "PRIM_OPS"]

ET_COPY_INDEX: Final = "executorch_prim::et_copy_index.tensor"
ET_VIEW: Final = "executorch_prim::et_view.default"

_SCALAR: Final = (
    *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "ceil", "round", "trunc"),
    *("eq", "gt", "lt", "ge", "le", "sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite"),
)

PRIM_OPS: Final = frozenset(
    {
        *(f"executorch_prim::{name}.Scalar" for name in _SCALAR),
        *("executorch_prim::floordiv.int", "executorch_prim::mod.int", ET_COPY_INDEX, ET_VIEW),
        *("aten::sym_size.int", "aten::sym_numel", "aten::_local_scalar_dense"),
    }
)

D2H_COPY: Final = "et_copy::_d2h_copy.out"

DEVICE_COPIES: Final = frozenset({"et_copy::_h2d_copy.out", D2H_COPY})

BUILT_IN: Final = PRIM_OPS | DEVICE_COPIES
"""All of them."""
