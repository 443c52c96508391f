"""An entry of torch's operator database and a dtype -> examples: small models that call the one operator."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from delegraph_testkit.models import Example
from delegraph_testkit.outcomes import Declined

__all__ = ["SAMPLES", "OperatorModule", "entries", "operator_examples", "samples_of"]

SAMPLES: Final = 2
"""Of each operator and dtype: the first ones that have elements and that eager torch runs."""

_LARGEST: Final = 20_000
"""Elements of an input: larger samples show nothing that smaller ones don't."""


@cache
def entries() -> dict[str, Any]:
    """The database by name; an entry may have variants: rounding modes, kinds of padding."""
    with warnings.catch_warnings(action="ignore"):  # torch's testing modules warn when imported
        from torch.testing._internal.common_methods_invocations import op_db
    for devices in (torch.cuda, torch.mtia, torch.xpu):
        # Each sample function seeds torch, and for a device that is not here torch notes the formatted stack: 10 ms.
        devices.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]
    return {f"{info.name}{info.variant_test_name and ' ' + info.variant_test_name}": info for info in op_db}


def operator_examples(entry: str, dtype: str) -> list[Example]:
    """Up to `SAMPLES` examples, the same every time. Raises `Declined` where this torch has none."""
    info = entries().get(entry)
    if info is None or getattr(torch, dtype) not in info.supported_dtypes("cpu"):
        raise Declined(f"torch {torch.__version__} has no samples of {entry} in {dtype}")
    examples: list[Example] = []
    with warnings.catch_warnings(action="ignore"), torch.random.fork_rng(devices=()):
        for sample in samples_of(info, getattr(torch, dtype)):
            example = _example(info, sample)
            if example is not None:
                examples.append(example)
            if len(examples) == SAMPLES:
                break
    if not examples:
        raise Declined(f"no sample of {entry} in {dtype} has elements and runs")
    return examples


def samples_of(info: Any, dtype: torch.dtype) -> Iterator[Any]:
    """The samples of an entry, the same every time; fewer where torch fails to make them."""
    torch.manual_seed(0)
    random.seed(0)
    before = np.random.get_state()  # torch's sample functions draw from it
    np.random.seed(0)
    try:
        yield from info.sample_inputs("cpu", dtype, requires_grad=False)
    except (NotImplementedError, RuntimeError, TypeError):
        return
    finally:
        np.random.set_state(before)


def _example(info: Any, sample: Any) -> Example | None:
    leaves, structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
    if not tensors or not all(0 < t.numel() <= _LARGEST and t.layout == torch.strided for t in tensors):
        return None
    module = OperatorModule(info.op, structure, leaves).eval()
    tensors = tuple(tensor.detach().clone() for tensor in tensors)
    try:
        module(*(tensor.clone() for tensor in tensors))
    except Exception:  # whatever torch raises: it is no example
        return None
    return Example({"forward": module}, {"forward": [tensors]})


class OperatorModule(nn.Module):
    """Calls `function` with the tensors that it gets, in the places where the sample has tensors."""

    def __init__(self, function: Callable[..., Any], structure: Any, leaves: list[Any]) -> None:
        super().__init__()
        self.function, self._structure = function, structure
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def forward(self, *tensors: Tensor) -> Any:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return self.function(*args, **kwargs)
