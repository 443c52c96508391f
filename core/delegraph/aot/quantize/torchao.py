"""torchao, if it is installed -> its functions that the way through quantization calls.

Importing it takes seconds, so nothing here does before somebody quantizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.fx import GraphModule

from delegraph.errors import DelegraphError, LoweringError

__all__ = ["calling_torchao", "check_torchao", "pt2e"]


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


def calling_torchao(method: str, quantizers: Iterable[str], step: Callable[[], GraphModule]) -> GraphModule:
    """What `step`, one of torchao's, gives. Raises `LoweringError` for what it raises, naming the quantizers."""
    try:
        return step()
    except DelegraphError:
        raise
    except Exception as cause:
        raise LoweringError(
            f"method {method!r}: torchao could not follow the annotations of {', '.join(quantizers)}:"
            f" {type(cause).__name__}: {cause}"
        ) from cause
