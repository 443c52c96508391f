"""A call and specs -> its annotation, as torchao keeps it; and what a quantizer asks of values before it writes one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeGuard

import torch
from torch.fx import Node
from torch.fx.node import Target

from delegraph.aot.graph.mutating_calls import changed_arguments
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.schema_binding import named_arguments

__all__ = [
    "ANNOTATION",
    "VALUE_MOVES",
    "Annotation",
    "ancestors",
    "annotate",
    "annotation_of",
    "float_operand",
    "fused_calls",
    "is_float_tensor",
    "is_quantized",
    "is_read_once",
    "is_weight",
    "is_written",
    "joined_specs",
    "operands_of",
    "shared_spec",
]

ANNOTATION: Final = "quantization_annotation"
"""Where torchao keeps a node's `QuantizationAnnotation` (`Q_ANNOTATION_KEY` of `pt2e/quantizer/quantizer.py`)."""

aten = torch.ops.aten

VALUE_MOVES: Final[frozenset[Target]] = frozenset(
    {
        *(aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.unsqueeze.default),
        *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.permute.default, aten.transpose.int),
        *(aten.slice.Tensor, aten.select.int, aten.expand.default, aten.clone.default, aten.contiguous.default),
        *(aten.dropout.default, aten.unflatten.int),
    }
)
"""Operators that give elements of their first argument as they are: on its grid."""


class Annotation(Protocol):
    """torchao's `QuantizationAnnotation` of a call: the specs of the values that it takes, and that of its result, None
    where it stays float."""

    input_qspec_map: dict[Node, object]
    output_qspec: object


def annotate(node: Node, inputs: Mapping[Any, object], output: object = None, fused: Iterable[Node] = ()) -> None:
    """Say how what `node` takes is quantized, by value, and how its result is; where there is no spec, it stays float.

    Of calls that are computed with it (`fused_calls`), each takes values as they are, and the last gives the result.
    It replaces the annotations that these calls had before.
    """
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

    calls = [node, *fused]
    for call in calls:
        taken = dict(inputs) if call is node else {}
        result = output if call is calls[-1] else None
        call.meta[ANNOTATION] = QuantizationAnnotation(taken, result, _annotated=True)


def annotation_of(node: Node) -> Annotation | None:
    """torchao's `QuantizationAnnotation` of a node, with `input_qspec_map` and `output_qspec`; None where there is
    none."""
    return node.meta.get(ANNOTATION)


def is_quantized(value: object) -> bool:
    """Whether a value is the result of a call, and annotated to be on a grid."""
    annotation = annotation_of(value) if isinstance(value, Node) else None
    return annotation is not None and annotation.output_qspec is not None


def operands_of(node: Node) -> list[Node]:
    """The values that a call takes by position, each once; those of its first argument where that is a list."""
    first = node.args[0] if node.args else None
    arguments = first if isinstance(first, list | tuple) else node.args
    return list(dict.fromkeys(value for value in arguments if isinstance(value, Node)))


def fused_calls(node: Node, *kinds: Callable[[Node], bool]) -> list[Node]:
    """The calls that a device computes with `node`: of each kind in turn, such as norms and then limits, the only
    reader of the result so far, where it is of that kind and has no annotation yet."""
    fused: list[Node] = []
    for is_kind in kinds:
        readers = list((fused[-1] if fused else node).users)
        if len(readers) == 1 and is_kind(readers[0]) and annotation_of(readers[0]) is None:
            fused.append(readers[0])
    return fused


def shared_spec(edge_or_node: object) -> object:
    """The grid of a result, which its call stands for, or of what a call takes: (value, call)."""
    from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

    return SharedQuantizationSpec(edge_or_node)


def is_float_tensor(
    value: object, dtypes: Container[torch.dtype] = (torch.float32, torch.float16, torch.bfloat16)
) -> TypeGuard[Node]:
    """Whether an argument is a tensor of floats, which is what there is to quantize: one without elements has none."""
    tensor = value.meta.get("val") if isinstance(value, Node) else None
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in dtypes:
        return False
    return not any(isinstance(size, int) and size == 0 for size in tensor.shape)


def float_operand(node: Node, is_quantized: Callable[[Node], bool] = is_quantized) -> str | None:
    """Which operand of floats is on no grid, as a reason why `node`, which takes grids as they are, is on none."""
    floats = [source for source in node.all_input_nodes if is_float_tensor(source) and not is_quantized(source)]
    if not floats:
        return None
    kind = {"call_function": f"what {operator_name(floats[0])} gives", "get_attr": "what the model has"}
    return f"it takes {kind.get(floats[0].op, 'an input')}, which stays float"


def is_weight(value: object) -> TypeGuard[Node]:
    """Whether an argument is the model's own: a parameter, a buffer or a constant, or computed from these alone (as by
    `weight_norm`), and nothing that a run gives."""
    if not isinstance(value, Node):
        return False
    return all(node.op in ("get_attr", "call_function") and not _is_changing(node) for node in ancestors([value]))


def ancestors(
    nodes: Iterable[Node], followed: Callable[[Node], Iterable[Node]] = lambda node: node.all_input_nodes
) -> Iterator[Node]:
    """These nodes and all that they are computed from, each once, through the inputs that `followed` gives of each."""
    todo = list(nodes)
    seen = set(todo)
    while todo:
        node = todo.pop()
        yield node
        new = [source for source in followed(node) if source not in seen]
        seen.update(new)
        todo += new


def is_read_once(value: Node) -> bool:
    """Whether nothing else is on the grid of a value: one call reads it, and so with what it has its grid from. Where
    values are joined on one grid, others would be as coarse."""
    annotation = annotation_of(value)
    is_shared = annotation is not None and hasattr(annotation.output_qspec, "edge_or_node")
    sources = annotation.input_qspec_map if annotation is not None and is_shared else ()
    return len(value.users) == 1 and all(map(is_read_once, sources))


def joined_specs(call: Node, operands: Mapping[Node, Any], result: object) -> tuple[dict[Node, Any], Any]:
    """The specs of the operands and of the result of a call that joins values, from those that each would have by
    itself: all are on the grid of the first, so that codes are joined as they are; each on its own where another call
    reads an operand."""
    first, *rest = operands
    if not all(map(is_read_once, operands)):
        return dict(operands), result
    shared = shared_spec((first, call))
    return {first: operands[first], **dict.fromkeys(rest, shared)}, shared


def is_written(attribute: Node) -> bool:
    """Whether a run writes into a parameter or buffer: a functional graph copies the new value there in the end."""
    return any(_writes(user, attribute) for user in attribute.users)


def _writes(call: Node, value: Node) -> bool:
    if not isinstance(call.target, torch._ops.OpOverload):
        return False
    written = changed_arguments(call.target)
    return any(name in written and passed is value for name, passed in named_arguments(call).items())


def _is_changing(node: Node) -> bool:
    """Whether `node` draws random numbers, or is a buffer that a run writes into."""
    if node.op == "get_attr":
        return is_written(node)
    return node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
