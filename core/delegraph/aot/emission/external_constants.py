"""(configuration, a method's signature) -> a function: weight's placeholder -> the `.ptd` that it goes to, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

import torch
from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.config import DEFAULT_EXTERNAL_TAG, ExecutorchBackendConfig
from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature

__all__ = ["tags_of_weights"]


def tags_of_weights(config: ExecutorchBackendConfig, signature: ResolvedSignature) -> Callable[[Node], str | None]:
    """The name without ".ptd"; never one for a constant that the model's code has in it or makes (a buffer that is not
    persistent), nor for zero points that are all the same: which integer stands for 0 is chosen with the scheme, not
    trained, and decides which kernels fit."""
    trained = {node.name for node in signature.trained} if config.external_mutable_weights else set()
    kept = {
        node.name
        for node, weight in signature.constants.items()
        if weight.is_lifted or not weight.is_persistent or _is_scheme(node, weight)
    }
    names = {node.name: weight.name for node, weight in signature.constants.items()}
    chosen = config.external_constants

    def tag(node: Node) -> str | None:
        if node.name in trained:
            return DEFAULT_EXTERNAL_TAG
        if node.name in kept:
            return None
        if callable(chosen):
            return chosen(node)
        if isinstance(chosen, Mapping):
            name = names.get(node.name)
            return next((file for pattern, file in chosen.items() if name and fnmatchcase(name, pattern)), None)
        return DEFAULT_EXTERNAL_TAG if chosen else None

    return tag


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
