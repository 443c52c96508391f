"""torchao, if it is installed -> its functions that the way through quantization calls.

Importing it takes seconds, so nothing here does before somebody quantizes.
"""

from __future__ import annotations

from typing import Any

from delegraph.errors import LoweringError

__all__ = ["check_torchao", "pt2e"]


def check_torchao() -> None:
    """Raise `LoweringError` with what to install if torchao cannot be imported."""
    pt2e()


def pt2e() -> Any:
    """The module with `prepare_pt2e` and `convert_pt2e`. Raises as `check_torchao`."""
    try:
        from torchao.quantization.pt2e import quantize_pt2e
    except ImportError as cause:
        raise LoweringError(
            f"quantizing needs torchao, which cannot be imported ({cause}): `pip install 'torchao>=0.18'`, or"
            " delegraph with the extra `quantize`"
        ) from cause
    return quantize_pt2e
