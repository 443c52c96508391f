"""The values of a model's nodes -> events of a tracer, by the edge program's nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

    from delegraph.interfaces import EventTracer

__all__ = ["add_values", "log_values"]

_NO_VALUES = ("Parameter", "Constant", "Result")


def add_values(model: openvino.Model) -> dict[str, int]:
    """Let the model give the value of each node that it was lowered from; their ids, with the outputs' places.

    Lowering names an operation after its node, `aten_relu_default/0`: the last of a node's gives its value.
    """
    last = {}
    for operation in model.get_ordered_ops():
        node, slash, _ = operation.get_friendly_name().partition("/")
        if slash and operation.get_type_name() not in _NO_VALUES:
            last[node] = operation.output(0)
    results = [result.input_value(0) for result in model.get_results()]
    added = [value for value in last.values() if value not in results]
    model.add_outputs(added)
    places = {value: place for place, value in reversed([*enumerate((*results, *added))])}
    return {node: places[value] for node, value in last.items()}


def log_values(request: openvino.InferRequest, places: Mapping[str, int], tracer: EventTracer) -> Callable[[], None]:
    """Before a run of `request`: the call that logs what it gave for each node, at its place among the outputs."""

    def log() -> None:
        for node, place in places.items():
            tracer.log_value(node, request.get_output_tensor(place).data, delegate_debug_id=node)

    return log
