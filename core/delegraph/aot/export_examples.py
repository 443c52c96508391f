"""Example arguments, dims and settings as people write them -> as `torch.export` takes them.

lower(model, x)                                   the one argument x
lower(model, tokenizer(text, return_tensors="pt"))    arguments by name
dynamic_shapes={0: Dim("batch", max=16)}          dim 0 of every tensor
a language model of transformers                  returns no KV cache, unless it gets one
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any

import torch
from torch.utils import _pytree as pytree

from delegraph.errors import LoweringError

__all__ = ["as_arguments", "shapes_by_argument", "without_kv_cache"]


def as_arguments(model: torch.nn.Module, args: Any, kwargs: Mapping[str, object] | None) -> tuple[Any, dict[str, Any]]:
    """Positional arguments and those by name: a lone tensor is the only one, a mapping has them by name.

    Of a mapping those that `forward` takes first are positional: a program takes these in both ways. Raises
    `LoweringError` for keyword arguments that are no mapping, and numbers where a tokenizer should give tensors.
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise LoweringError(f"kwargs is {type(kwargs).__name__}; it is a mapping of arguments by name: {{'x': x}}")
    by_name = dict(kwargs or {})
    if isinstance(args, torch.Tensor):
        return (args,), by_name
    if not isinstance(args, Mapping):
        return args, by_name
    rest = {**args, **by_name}
    for name, value in rest.items():
        if isinstance(value, list) and value and all(type(leaf) is int for leaf in pytree.tree_leaves(value)):
            raise LoweringError(
                f"example argument {name!r} is a list of numbers, which would be fixed in the program; give a tensor:"
                ' tokenizer(…, return_tensors="pt"), or torch.tensor([…])'
            )
    first = []
    for parameter in signature(model.forward).parameters.values():
        if parameter.name not in rest or parameter.kind is not Parameter.POSITIONAL_OR_KEYWORD:
            break
        first.append(rest.pop(parameter.name))
    return tuple(first), rest


def shapes_by_argument(
    method: str, model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], shapes: Any
) -> Any:
    """`dynamic_shapes` by argument, of one that goes by dim: `{0: Dim("batch", max=16)}` is of every tensor that has
    the dim. Raises `LoweringError` for a dim that none has."""
    if not isinstance(shapes, Mapping) or not shapes or not all(type(dim) is int for dim in shapes):
        return shapes
    most = max((leaf.dim() for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)), default=0)
    for dim in shapes:
        if not 0 <= dim < most:
            raise LoweringError(
                f"method {method!r}: dynamic_shapes has dim {dim} of every tensor, and the example arguments have at"
                f" most {most} dims, which count from 0"
            )

    def of_leaf(leaf: object) -> dict[int, object] | None:
        dims = leaf.dim() if isinstance(leaf, torch.Tensor) else 0
        return {dim: size for dim, size in shapes.items() if dim < dims} or None

    arguments = signature(model.forward).bind(*args, **kwargs).arguments
    return {name: pytree.tree_map(of_leaf, value) for name, value in arguments.items()}


@contextmanager
def without_kv_cache(model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Iterator[None]:
    """Within, a model of `transformers` that is given no KV cache makes none: its configurations, which say that it
    does (`use_cache`), are as they were behind it. No program could return the object."""
    forward = signature(model.forward)
    asked = {"use_cache", "past_key_values"} & forward.bind(*args, **kwargs).arguments.keys()
    configs: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    caching = list({id(config): config for config in configs if getattr(config, "use_cache", None) is True}.values())
    if "use_cache" not in forward.parameters or asked or not caching:
        yield
        return
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True
