"""The configuration -> external tags on the weights' placeholders, which everything behind reads (`external_tag`).

backend takes external constants            it does not
d = call_delegate(lowered, x)               d = call_delegate(lowered, x, fc_weight)
blob: "the data under 'fc.weight'"          blob: "the second input"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.config import DEFAULT_EXTERNAL_TAG, ExecutorchBackendConfig
from delegraph.aot.delegation.lowerings import find_lowering
from delegraph.aot.delegation.partition import TAG, Partitioned
from delegraph.aot.graph.external_constants import external_tag, set_external_tag
from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature
from delegraph.errors import PluginNotFound
from delegraph.plugins.registry import PluginRegistry

__all__ = ["keep_from_blobs", "tag_constants"]


def tag_constants(program: ExportedProgram, config: ExecutorchBackendConfig, *, keep: bool = False) -> None:
    """Give each weight the tag that the configuration has for it, in place; with `keep`, one that came with the program
    stays where the configuration has none."""
    signature = ResolvedSignature.of(program)
    trained = {node: signature.states[node] for node in signature.trained}
    tags = {node: _tag(node, weight, config) for node, weight in (*signature.constants.items(), *trained.items())}
    if config.external_mutable_weights:
        tags |= dict.fromkeys(trained, DEFAULT_EXTERNAL_TAG)
    for node, tag in tags.items():
        if tag is not None or not keep:
            set_external_tag(node, tag)


def _tag(node: Node, weight: HeldTensor, config: ExecutorchBackendConfig) -> str | None:
    """The tag of a weight, which is never one for a constant that the model's code has in it or makes (a buffer that is
    not persistent), nor for zero points that are all the same: which integer stands for 0 is chosen with the scheme,
    not trained, and decides which kernels fit."""
    chosen = config.external_constants
    if weight.is_lifted or not weight.is_persistent or _is_scheme(node, weight):
        return None
    if callable(chosen):
        return chosen(node)
    if isinstance(chosen, Mapping):
        return next((file for pattern, file in chosen.items() if fnmatchcase(weight.name, pattern)), None)
    return DEFAULT_EXTERNAL_TAG if chosen else None


def _is_scheme(node: Node, weight: HeldTensor) -> bool:
    """Whether it is read as the zero points of quantize and dequantize calls alone, and all of them are the same."""
    read_as = {name for user in node.users for name in _names_of(node, user)}
    if not read_as or not read_as <= {"zero_point", "zero_points"}:
        return False
    return weight.tensor.numel() > 0 and bool(torch.all(weight.tensor == weight.tensor.reshape(-1)[0]))


def _names_of(argument: Node, call: Node) -> Iterator[str]:
    """The parameters that a quantize or dequantize call has `argument` for; "" where another call reads it."""
    target = call.target
    if not isinstance(target, OpOverload) or target.namespace != "quantized_decomposed":
        yield ""
        return
    parameters = (parameter.name for parameter in target._schema.arguments)
    arguments = {**dict(zip(parameters, call.args, strict=False)), **call.kwargs}
    yield from (name for name, value in arguments.items() if value is argument)


def keep_from_blobs(partitioned: Partitioned, plugins: PluginRegistry) -> None:
    """Make external constants inputs of the delegates of those backends that do not take them through named data."""
    for node in ResolvedSignature.of(partitioned.program).constants:
        if external_tag(node) is not None and TAG in node.meta:
            backend_id = partitioned.tags[node.meta[TAG]].backend_id
            if not _takes_external_constants(backend_id, plugins):
                del node.meta[TAG]


def _takes_external_constants(backend_id: str, plugins: PluginRegistry) -> bool:
    try:
        lowering = find_lowering(backend_id, plugins)[1]
    except PluginNotFound:  # `checks.backends` says so, with the partitioner that asked for it
        return False
    return bool(getattr(lowering, "takes_external_weights", False))
