"""A module with observers + batches -> its observers have seen what flows through it; and the first batch, sorted."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from delegraph.aot.quantize.request import Batch, not_a_batch
from delegraph.errors import LoweringError

__all__ = ["Arguments", "calibrate"]

Arguments: TypeAlias = "tuple[Sequence[object], Mapping[str, object]]"
"""Arguments by position, and by name."""


def calibrate(method: str, module: GraphModule, positional: int, batches: Iterable[Batch]) -> Arguments:
    """Run `module`, whose first `positional` inputs are passed by position, on every batch, one after the other: on
    copies, since a module may write into what it is given.

    Returns the arguments that the first batch is. Raises `LoweringError` that names the batch if it is not one or the
    module raises, and if there are none.
    """
    names = list(inspect.signature(module.forward).parameters)
    first: Arguments | None = None
    for number, batch in enumerate(batches):
        which = f"method {method!r}, calibration batch {number}"
        args, kwargs = _arguments(which, batch, names, positional)
        first = first or (args, kwargs)
        try:
            with torch.no_grad():
                module(*_copied(args), **_copied(kwargs))
        except Exception as cause:
            raise LoweringError(
                f"{which} does not run: {cause}\n  the inputs are {_names(names, positional)}, and the batch has"
                f" {_shown(batch)}"
            ) from cause
    if first is None:
        raise LoweringError(f"method {method!r}: the calibration data is empty; give a few typical inputs")
    return first


_T = TypeVar("_T")


def _copied(arguments: _T) -> _T:
    copied: _T = pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
    return copied


def _arguments(which: str, batch: object, names: Sequence[str], positional: int) -> Arguments:
    if isinstance(batch, (tuple, list)):
        return batch, {}
    if not isinstance(batch, Mapping):
        raise not_a_batch(which, batch)
    if missing := [name for name in names if name not in batch]:
        raise LoweringError(f"{which} has no {', '.join(missing)}; the inputs are {_names(names, positional)}")
    by_position = names[:positional]
    return [batch[name] for name in by_position], {k: v for k, v in batch.items() if k not in by_position}


def _names(names: Sequence[str], positional: int) -> str:
    by_keyword = [f"{name}=…" for name in names[positional:]]
    return ", ".join([*names[:positional], *by_keyword]) or "(none)"


def _shown(batch: Batch) -> str:
    if isinstance(batch, Mapping):
        return ", ".join(f"{name}={_kind(value)}" for name, value in batch.items()) or "nothing"
    return ", ".join(_kind(value) for value in batch) or "nothing"


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__
