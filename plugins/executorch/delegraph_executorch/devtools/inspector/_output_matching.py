"""Values of exported nodes and values of instructions -> pairs that ought to be equal, by debug handles.

ahead of time   (1,) a   (2,) b   (3,) c            a delegate has the handles of all nodes in it,
at run time     (1, 2) x          (3,) y            and gives what the last of them gives
pairs           b = x              c = y
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from delegraph_executorch.devtools.inspector._debug_handles import DebugHandle

__all__ = [
    "NodeData",
    "NodeSource",
    "convert_to_float_tensor",
    "map_runtime_aot_intermediate_outputs",
    "merge_runtime_overlapping_debug_handles",
]

RuntimeOutput = tuple[int, Any, int]
"""Instruction, value, number of results."""


class NodeSource(Enum):
    """Where a value is from."""

    AOT = 1
    RUNTIME = 2


@dataclass
class NodeData:
    """A value with its handles."""

    source: NodeSource
    debug_handle: DebugHandle
    output: Any
    num_outputs: int


def merge_runtime_overlapping_debug_handles(
    runtime_intermediate_outputs: Mapping[DebugHandle, RuntimeOutput],
) -> dict[DebugHandle, RuntimeOutput]:
    """Values whose handles overlap, as one: that of the last instruction, with the handles of all, its own last."""
    merged: dict[DebugHandle, RuntimeOutput] = {}
    for handles, value in runtime_intermediate_outputs.items():
        overlapping = [other for other in merged if set(other) & set(handles)]
        for other in overlapping:
            earlier = merged.pop(other)
            if earlier[0] < value[0]:
                handles = _joined(other, handles)
            else:
                handles, value = _joined(handles, other), earlier
        merged[handles] = value
    return merged


def _joined(first: DebugHandle, last: DebugHandle) -> DebugHandle:
    """All of `last` behind what `first` alone has, each once."""
    return tuple(dict.fromkeys([*(handle for handle in first if handle not in last), *last]))


def map_runtime_aot_intermediate_outputs(
    aot_intermediate_outputs: Mapping[DebugHandle, Any],
    runtime_intermediate_outputs: Mapping[DebugHandle, tuple[Any, int]],
) -> dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]]:
    """(handles, value) of the graph -> (handles, value) of the runtime, for each result that has both.

    Raises `ValueError` where handles of several instructions overlap: merge those first.
    """
    pairs: dict[tuple[DebugHandle, Any], tuple[DebugHandle, Any]] = {}
    for handles, (value, count) in runtime_intermediate_outputs.items():
        known = {own: output for own, output in aot_intermediate_outputs.items() if set(own) & set(handles)}
        for own in known:
            instructions = [other for other in runtime_intermediate_outputs if set(other) & set(own)]
            if len(instructions) > 1:
                raise ValueError(
                    f"Expected only one runtime debug handle, but found {len(instructions)}: {instructions}"
                )
        for expected, given in _results(known, handles, value, count):
            pairs[handles, expected] = handles, given
    return pairs


def _results(
    known: Mapping[DebugHandle, Any], handles: DebugHandle, value: Any, count: int
) -> Iterator[tuple[Any, Any]]:
    """(expected, given) for each of `count` results, the last first: those are the last handles'."""
    if not known or not {handle[0] for handle in known} <= set(handles):
        return
    for place in range(-1, -1 - min(count, len(handles)), -1):
        key = (handles[place],)
        if key in known:
            expected = known[key]
            if isinstance(expected, Sequence):
                yield tuple(expected), tuple(_as_list(value, place))
            else:
                yield expected, _as_one(expected, value, count, place)


def _as_list(value: Any, place: int) -> Sequence[Any]:
    if not isinstance(value, Sequence):
        raise TypeError("a node gives several values, and the runtime one; were both from one program?")
    last = value[place]
    if isinstance(last, list) and all(isinstance(one, torch.Tensor) for one in last):
        return last
    if isinstance(last, torch.Tensor):
        return value
    raise ValueError(f"a node gives several tensors, and the runtime {type(last).__name__}")


def _as_one(expected: Any, value: Any, count: int, place: int) -> Any:
    """Of several values that an instruction wrote, the only one of the shape, or of shape and dtype; else the last."""
    if not isinstance(value, Sequence):
        return value
    if count == 1 and len(value) > 1 and isinstance(expected, torch.Tensor):
        fitting = [one for one in value if isinstance(one, torch.Tensor) and one.shape == expected.shape]
        if len(fitting) > 1:
            fitting = [one for one in fitting if one.dtype == expected.dtype]
        return fitting[0] if len(fitting) == 1 else value[-1]
    return value[place]


def convert_to_float_tensor(input_data: Any) -> torch.Tensor:
    """A tensor or number as a float64 tensor on the CPU, NaN as 0. Raises `ValueError`; a list is an assertion's."""
    assert not isinstance(input_data, Sequence), "lists are compared item by item"
    try:
        tensor = torch.as_tensor(input_data, dtype=torch.float64)
    except Exception as error:
        raise ValueError(f"Cannot convert value of type {type(input_data)} to a tensor: {error}") from error
    return torch.nan_to_num(tensor.detach().cpu()) if tensor.isnan().any() else tensor.detach().cpu()
