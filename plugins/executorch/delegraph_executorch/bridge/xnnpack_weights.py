"""Stored weights that XNNPACK is not to have: ExecuTorch's partitioner takes them, and numbers come out wrong."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import torch
from torch.fx import Node

__all__ = ["TAG", "declined_by_xnnpack", "kept_for_xnnpack"]

TAG: Final = "delegation_tag"

_UNKNOWN: Final = (
    "XNNPACK computes with stored weights where values are quantized too, and codes stand in bytes of their own"
)
_INTEGERS: Final = "XNNPACK takes integers for floats"
_TURNS: Final = ("permute_copy", "t_copy", "transpose_copy")


def declined_by_xnnpack(result: Any) -> dict[Node, str]:
    """Take XNNPACK's tag from calls that read integers, that read a stored weight in a form that it does not know,
    and that restore such a weight: all of them, with a reason each.

    XNNPACK takes the bytes of integers for floats. Unless the weight is dequantized as it stands in the file, and
    values are quantized too, XNNPACK fails to compile, or multiplies by the codes and says nothing.
    """
    tags = {tag for tag, spec in result.partition_tags.items() if spec.backend_id == "XnnpackBackend"}
    program = result.tagged_exported_program
    inputs = set(program.graph_signature.user_inputs)
    restored: dict[Node, list[Node]] = {}  # what is computed of constants -> the calls that do it
    declined: dict[Node, str] = {}
    for node in program.graph.nodes:
        if node.meta.get(TAG) in tags and not _rounds(node) and any(map(_is_integers, node.all_input_nodes)):
            declined[node] = _INTEGERS
        weights = [source for source in node.all_input_nodes if any(map(_dequantizes, restored.get(source, ())))]
        if node.op == "placeholder" and node.name not in inputs:
            restored[node] = []
        elif node.op == "call_function" and all(source in restored for source in node.all_input_nodes):
            restored[node] = [node, *(call for source in node.all_input_nodes for call in restored[source])]
        elif weights and node.meta.get(TAG) in tags:
            values = [source for source in node.all_input_nodes if source not in restored]
            if not all(map(_as_it_stands, weights)) or not any(map(_dequantizes, values)):
                restoring = [call for weight in weights for call in restored[weight]]
                declined |= dict.fromkeys([node, *restoring, *_rounding(values)], _UNKNOWN)
    _take_out(declined, result)
    return declined


def _take_out(nodes: Collection[Node], result: Any) -> None:
    """Let `nodes` be in no partition. What stood behind one of them in its partition is one of its own from now on."""
    depths: dict[Node, int] = {}  # how many of the nodes lie on the longest way to a call
    split = {node.meta.pop(TAG) for node in nodes if TAG in node.meta}
    for node in result.tagged_exported_program.graph.nodes:
        depths[node] = max((depths[source] for source in node.all_input_nodes), default=0) + (node in nodes)
        if depths[node] and node.meta.get(TAG) in split:
            tag = node.meta[TAG]
            node.meta[TAG] = f"{tag}_{depths[node]}"
            result.partition_tags[node.meta[TAG]] = result.partition_tags[tag]


def _dequantizes(node: Node) -> bool:
    return ".dequantize_" in str(node.target)


def _rounds(node: Node) -> bool:
    return any(step in str(node.target) for step in ("quantize_", "choose_qparams"))


def _is_integers(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dtype.is_floating_point and value.dtype is not torch.bool


def _rounding(values: Iterable[Node]) -> Iterator[Node]:
    """The calls that quantize and dequantize these values, which XNNPACK knows before a product alone."""
    for value in values:
        if value.target is operator.getitem or _rounds(value):
            yield value
            yield from _rounding(value.all_input_nodes)


def _as_it_stands(weight: Node) -> bool:
    """Whether `weight` is a constant, dequantized and perhaps turned. XNNPACK reads zero points of channels."""
    while any(f".{turn}." in str(weight.target) for turn in _TURNS):
        (weight,) = weight.all_input_nodes
    lacks_zeros = ".dequantize_per_channel." in str(weight.target) and weight.args[2] is None
    codes = weight.args[0] if _dequantizes(weight) and not lacks_zeros else None
    return isinstance(codes, Node) and codes.op == "placeholder"


def kept_for_xnnpack(accepts: Callable[[Node], bool] | None) -> Callable[[Node], bool]:
    """`accepts`, but for a weight of torchao's that meets no quantized values: kernels have a form of it."""

    def accepts_and_knows(node: Node) -> bool:
        is_weight = _dequantizes(node) and all(source.op != "call_function" for source in node.all_input_nodes)
        met = (value for reader in node.users for value in reader.all_input_nodes if value is not node)
        return (accepts is None or accepts(node)) and (not is_weight or any(map(_dequantizes, met)))

    return accepts_and_knows
