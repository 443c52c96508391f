"""A converted module -> the same, its constants named after the weights that they stand for.

    _frozen_param3                         layers.0.q.weight_int8
    _scale_2, _zero_point_2                layers.0.q.weight_int8_scales, layers.0.q.weight_int8_zero_points

torchao numbers them. Who chooses weights by their names (`external_constants={"lora_*": …}`) means the model's.
"""

from __future__ import annotations

import re
from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from delegraph.aot.graph.schema_binding import named_arguments
from delegraph.aot.module_stack import module_path, module_stack

__all__ = ["add_constant", "name_constants", "owner_of", "parameter_name", "register"]


def name_constants(module: GraphModule) -> None:
    """Rename, in place, what dequantize calls read of constants that torchao has numbered."""
    for node in list(module.graph.nodes):
        weight = _weight_of(node)
        if weight is None:
            continue
        path, parameter = weight
        kind = str(node.kwargs.get("dtype", node.args[-1])).removeprefix("torch.")
        for argument, part in zip(node.args[:3], _PARTS, strict=False):
            if isinstance(argument, Node) and argument.op == "get_attr" and _NUMBERED.fullmatch(str(argument.target)):
                _rename(module, str(argument.target), f"{path}.{parameter}_{kind}{part}")


def add_constant(module: GraphModule, name: str, tensor: torch.Tensor) -> str:
    """Put a buffer, or a parameter that is one, where `name` says; its name there, which another one may have had."""
    path, _, attribute = name.rpartition(".")
    owner = owner_of(module, path)
    number, free = 1, attribute
    while hasattr(owner, free):
        number, free = number + 1, f"{attribute}_{number}"
    register(owner, free, tensor)
    return f"{path}.{free}" if path else free


def owner_of(module: torch.nn.Module, path: str) -> torch.nn.Module:
    """The submodule at `path`: one that is not there, as torchao takes out those that nothing is read of, is made."""
    for name in path.split(".") if path else ():
        if not hasattr(module, name):
            module.add_module(name, torch.nn.Module())
        module = getattr(module, name)
    return module


def register(owner: torch.nn.Module, attribute: str, tensor: torch.Tensor) -> None:
    """Let `owner` have `tensor`, itself, as the parameter that it is, or as a buffer."""
    if isinstance(tensor, torch.nn.Parameter):
        owner.register_parameter(attribute, tensor)
    else:
        owner.register_buffer(attribute, tensor)


def parameter_name(kept: str) -> str:
    """The name of the parameter that `torch.nn.utils.parametrizations` keeps as `kept`; any other name is one."""
    return _PARAMETRIZED.sub(r"\1", kept)


_PARAMETRIZED: Final = re.compile(r"\bparametrizations\.(\w+)\.original\d*$")

_PARTS: Final = ("", "_scales", "_zero_points")
"""The ends of the names of the first three arguments of a dequantize call, behind the integers' dtype."""
_NUMBERED: Final = re.compile(r"_(frozen_param|scale_|zero_point_)\d+")


def _weight_of(node: Node) -> tuple[str, str] | None:
    """The module whose call reads `node`, a dequantize call, and the parameter as which it does; else None."""
    if not isinstance(node.target, OpOverload) or not node.target.name().startswith("quantized_decomposed::dequantize"):
        return None
    for user in node.users:
        read_as = next((name for name, value in named_arguments(user).items() if value is node), None)
        if module_stack(user) and read_as in ("weight", "bias"):
            return module_path(user), read_as
    return None


def _rename(module: GraphModule, old: str, new: str) -> None:
    tensor = getattr(module, old)
    delattr(module, old)
    name = add_constant(module, new, tensor)
    for node in module.graph.find_nodes(op="get_attr"):
        if node.target == old:
            node.target = name
