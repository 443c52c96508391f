"""Example arguments and `dynamic_shapes` -> the names of dims that vary, and examples that leave them free.

torch.export takes a size of 1 for a fixed one, whatever `dynamic_shapes` says; so an example of size 1 on a dynamic dim
is repeated along it. A dim that is derived from another, `2 * n`, grows with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeAlias, cast

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

__all__ = ["Examples", "dim_names", "free_examples"]

_Dims: TypeAlias = Mapping[int, object]


@dataclass(frozen=True, slots=True)
class Examples:
    """Example arguments, by position and by name; `resized` are the places of those that were repeated."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    resized: Sequence[str] = field(default=())


def dim_names(model: torch.nn.Module, examples: Examples, shapes: object) -> dict[int, dict[int, str]]:
    """The names of the dims of each example tensor, by its identity."""
    return {
        id(tensor): {position: dim.__name__ for position, dim in dims.items() if isinstance(dim, Dim)}
        for tensor, dims in _dynamic(model, examples, shapes)
    }


def free_examples(model: torch.nn.Module, examples: Examples, shapes: object) -> Examples:
    """`examples` with each tensor of size 1 on a dynamic dim repeated along it, once; themselves if there is none."""
    examples = _apart(examples)
    dynamic = list(_dynamic(model, examples, shapes))
    roots = _roots_of_one(dynamic)
    resized: dict[int, torch.Tensor] = {}
    for tensor, dims in dynamic:
        sizes = {place: size for place, dim in dims.items() if (size := _free_size(dim, tensor.shape[place], roots))}
        if sizes:
            resized[id(tensor)] = _repeated(tensor, sizes)
    if not resized:
        return examples
    leaves, spec = pytree.tree_flatten_with_path((examples.args, dict(examples.kwargs)))
    places = [
        ("args", "kwargs")[cast("Any", path[0]).idx] + pytree.keystr(path[1:])
        for path, leaf in leaves
        if id(leaf) in resized
    ]
    args, kwargs = pytree.tree_unflatten([resized.get(id(leaf), leaf) for _, leaf in leaves], spec)
    return Examples(args, kwargs, tuple(places))


def _apart(examples: Examples) -> Examples:
    """`examples` with a tensor of its own in each place: one that is given twice may vary in one of them alone."""
    leaves, spec = pytree.tree_flatten((examples.args, dict(examples.kwargs)))
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(set(tensors)) == len(tensors):
        return examples
    own = [
        leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    ]
    return Examples(*pytree.tree_unflatten(own, spec))


def _roots_of_one(dynamic: Sequence[tuple[torch.Tensor, _Dims]]) -> set[str]:
    """The names of the dims that are 1 in all examples, and may be 2."""
    roots: dict[str, bool] = {}
    for tensor, dims in dynamic:
        for place, dim in dims.items():
            if isinstance(dim, Dim):
                root = getattr(dim, "root", dim)
                fits = root.max >= 2 and root.min <= 2 and tensor.shape[place] == _size_of(dim, 1)
                roots[root.__name__] = roots.get(root.__name__, True) and fits
    return {name for name, fits in roots.items() if fits}


def _free_size(dim: object, size: int, roots: set[str]) -> int | None:
    """The size that leaves `dim` free, or None where `size` does."""
    if isinstance(dim, Dim):
        return _size_of(dim, 2) if getattr(dim, "root", dim).__name__ in roots else None
    if dim is None or isinstance(dim, int) or getattr(getattr(dim, "type", None), "name", "") != "DYNAMIC":
        return None
    largest = getattr(dim, "max", None)
    return 2 if size == 1 and (largest is None or largest >= 2) else None


def _size_of(dim: Dim, root: int) -> int:
    function = getattr(dim, "fn", None)
    return int(function(root)) if function is not None else root


def _repeated(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    """`tensor` repeated, cut to `sizes` by dim, in the same order of memory."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    with torch.no_grad():
        longer = tensor.detach()
        for dim, size in sizes.items():
            longer = longer.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])
        longer = longer.permute(order).contiguous().permute([order.index(dim) for dim in range(tensor.dim())])
    return longer.requires_grad_(tensor.requires_grad)


# ---- which dims vary --------------------------------------------------------------------------------


def _dynamic(model: torch.nn.Module, examples: Examples, shapes: object) -> Iterator[tuple[torch.Tensor, _Dims]]:
    """Each example tensor with its dims, as `shapes` describes them by argument."""
    arguments = signature(model.forward).bind(*examples.args, **examples.kwargs).arguments
    if isinstance(shapes, Mapping):
        yield from _below(arguments, shapes)
    elif isinstance(shapes, (tuple, list)):
        yield from _below(arguments, dict(zip(arguments, shapes, strict=False)))


def _below(example: object, shapes: object) -> Iterator[tuple[torch.Tensor, _Dims]]:
    """`shapes` has the structure of `example`, with a mapping or sequence of dims where that has a tensor."""
    if isinstance(example, torch.Tensor):
        by_place = shapes if isinstance(shapes, (tuple, list)) else ()
        dims = dict(shapes) if isinstance(shapes, Mapping) else dict(enumerate(by_place))
        yield example, {place: dim for place, dim in dims.items() if place in range(example.dim())}
    elif isinstance(shapes, Mapping) and isinstance(example, Mapping):
        for key in shapes.keys() & example.keys():
            yield from _below(example[key], shapes[key])
    elif isinstance(shapes, (tuple, list)) and isinstance(example, (tuple, list)):
        for inner, below in zip(example, shapes, strict=False):
            yield from _below(inner, below)
