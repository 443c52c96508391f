"""A model and inputs -> a table: what each tapped node gives, exported and at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from delegraph.aot import to_edge_transform_and_lower
from delegraph.runtime import Runtime
from delegraph_executorch.devtools.inspector._values import pandas, signal_to_noise
from delegraph_executorch.devtools.intermediate_output_tap._reducers import FULL_TENSOR
from delegraph_executorch.devtools.intermediate_output_tap._spec import TapSpec
from delegraph_executorch.devtools.intermediate_output_tap._strip_pass import strip_taps_
from delegraph_executorch.devtools.intermediate_output_tap._tap_pass import TapRule, tap_intermediate_outputs_

__all__ = ["compare_aot_runtime_dataframe", "tap_compare"]


def tap_compare(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    partitioner: list[Any] | None = None,
    *,
    rules: Sequence[TapRule] | TapRule | None = None,
    error_on_empty: bool = True,
) -> tuple[Any, list[TapSpec]]:
    """Export, tap (`rules` as in `tap_intermediate_outputs_`), lower onto `partitioner`, run, and compare.

    Gives the table of `compare_aot_runtime_dataframe`, and what each tap is.
    """
    tapped, specs = tap_intermediate_outputs_(
        torch.export.export(model, example_inputs, strict=True), rules=rules, error_on_empty=error_on_empty
    )
    expected = pytree.tree_leaves(tapped.module()(*example_inputs))
    edge = to_edge_transform_and_lower(tapped, partitioner=partitioner or [])
    strip_taps_(edge)
    method = Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward")
    return compare_aot_runtime_dataframe(specs, expected, method.execute(pytree.tree_leaves(example_inputs))), specs


def compare_aot_runtime_dataframe(specs: Sequence[TapSpec], aot_flat: Sequence[Any], rt_flat: Sequence[Any]) -> Any:
    """A pandas DataFrame with a row for each tap, from the flat outputs of the tapped program and of the runtime.

    Of a reducer with fields each as `aot_<field>` and `rt_<field>`; of whole tensors the signal-to-noise ratio in dB.
    """
    rows = [_row(spec, _numbers(aot_flat[spec.output_index]), _numbers(rt_flat[spec.output_index])) for spec in specs]
    return pandas().DataFrame(rows)


def _row(spec: TapSpec, expected: list[float], given: list[float]) -> dict[str, Any]:
    keys = ("node_name", "module_path", "module_class", "op_target", "reducer_name", "output_index")
    row = {key: getattr(spec, key) for key in keys}
    if spec.reducer_name == FULL_TENSOR.name:
        return {**row, "sqnr_db": _sqnr(expected, given), "aot_numel": len(expected), "rt_numel": len(given)}
    fields = spec.fields or [f"v{index}" for index in range(max(len(expected), len(given)))]
    for index, name in enumerate(fields):
        row[f"aot_{name}"] = expected[index] if index < len(expected) else float("nan")
        row[f"rt_{name}"] = given[index] if index < len(given) else float("nan")
    return row


def _numbers(value: Any) -> list[float]:
    """A tensor's elements, a list's, or the number itself; nothing of what is none of these."""
    if isinstance(value, (list, tuple)):
        return [number for one in value for number in _numbers(one)]
    if isinstance(value, (torch.Tensor, int, float)):
        flat: list[float] = torch.as_tensor(value).detach().to(torch.float32).reshape(-1).tolist()
        return flat
    return []


def _sqnr(expected: list[float], given: list[float]) -> float:
    """Signal-to-noise ratio in dB: inf where nothing differs."""
    count = min(len(expected), len(given))
    if not count:
        return float("nan")
    return float(signal_to_noise(torch.tensor(expected[:count]), torch.tensor(given[:count])))
