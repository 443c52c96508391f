"""nn.Module | ExportedProgram | {method: either} -> {method: ExportedProgram} in the ATen dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot.export_checks import (
    check_arguments,
    check_dynamic_shapes,
    check_fitting,
    check_model,
    check_names,
    check_tuple,
)
from delegraph.aot.export_dims import Examples, dim_names, free_examples
from delegraph.aot.export_errors import quiet_torch, user_line, why_export_failed
from delegraph.aot.export_examples import as_arguments, shapes_by_argument, without_kv_cache
from delegraph.aot.export_state import Assignment, kept_state
from delegraph.aot.graph.lifted import with_own_tensors, without_unread
from delegraph.aot.second_call import check_second_call
from delegraph.errors import LoweringError

__all__ = [
    "DIM_NAMES",
    "DynamicShapes",
    "ExampleArguments",
    "ExportRequest",
    "Model",
    "export_method",
    "export_requests",
    "only_program",
]

DIM_NAMES: Final = "delegraph.dim_names"
"""The key of a placeholder's meta under which the names of its dynamic dims lie, by position: torch forgets them."""

Model: TypeAlias = "torch.nn.Module | ExportedProgram | Mapping[str, torch.nn.Module | ExportedProgram]"

DynamicShapes: TypeAlias = "Mapping[Any, object] | tuple[object, ...] | list[object] | None"
"""Which dims vary, as `torch.export.export` takes it, or by dim, of every tensor; or that by method name."""

ExampleArguments: TypeAlias = "torch.Tensor | Sequence[object] | Mapping[str, object] | None"
"""Arguments by position, or by name, or the only one; or any of these by method name."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """One method to export: a module with example arguments, or a program that is exported already."""

    model: torch.nn.Module | ExportedProgram
    args: tuple[object, ...] | None = None
    kwargs: Mapping[str, object] | None = None
    dynamic_shapes: DynamicShapes = None


def export_requests(
    model: Model,
    args: ExampleArguments = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: DynamicShapes = None,
) -> dict[str, ExportRequest]:
    """The requests for exporting, by method; a single model is the method `forward`.

    With several methods `args`, `kwargs` and `dynamic_shapes` are mappings by method name, with one they may be; a
    model may be what `quantize` made of a single one. Example arguments of a program are not used, but have to fit it.
    Raises `LoweringError` where arguments are missing, left over, or not what they have to be.
    """
    if not isinstance(model, Mapping):
        return {"forward": _request("forward", model, args, kwargs, dynamic_shapes)}
    if not model:
        raise LoweringError("no methods to lower: the mapping of models is empty")
    check_names(model)
    model = {method: only_program(entry) for method, entry in model.items()}
    for method, method_model in model.items():
        if not isinstance(method_model, ExportedProgram):
            check_model(method, method_model)
    by_method: dict[str, object] = {"args": args, "kwargs": kwargs, "dynamic_shapes": dynamic_shapes}
    if len(model) == 1:
        by_method = {name: _of_only_method(value, next(iter(model))) for name, value in by_method.items()}
    for name, value in by_method.items():
        if value is not None and (not isinstance(value, Mapping) or not set(value) <= set(model)):
            raise LoweringError(f"{name} must be a mapping by method name; the methods are {', '.join(sorted(model))}")
    return {
        method: _request(
            method, entry, *(value.get(method) if isinstance(value, Mapping) else None for value in by_method.values())
        )
        for method, entry in model.items()
    }


def _of_only_method(value: object, method: str) -> object:
    """`value` by method name; what is not that already belongs to the one method."""
    return value if value is None or (isinstance(value, Mapping) and set(value) <= {method}) else {method: value}


def only_program(model: object) -> Any:
    """A mapping of one program, as `quantize` gives it, is that program."""
    return next(iter(model.values())) if isinstance(model, Mapping) and len(model) == 1 else model


def _request(method: str, model: object, args: Any, kwargs: Any, dynamic_shapes: Any) -> ExportRequest:
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None:
            raise LoweringError(f"method {method!r} is exported already: dynamic shapes belong to torch.export")
        if args is not None or kwargs:
            args, kwargs = as_arguments(model.graph_module, args, kwargs)
            check_fitting(method, model, args, kwargs)
        return ExportRequest(model)
    check_model(method, model)
    assert isinstance(model, torch.nn.Module)
    if args is None and not kwargs:
        taken = ", ".join(signature(model.forward).parameters)
        raise LoweringError(
            f"method {method!r}: an nn.Module needs example arguments to be exported: lower(model, ({taken},))"
        )
    args, kwargs = as_arguments(model, args, kwargs)
    check_tuple(method, args)
    args = tuple(args or ())
    check_arguments(method, model, args, kwargs)
    shapes = shapes_by_argument(method, model, args, kwargs, dynamic_shapes)
    check_dynamic_shapes(method, model, shapes)
    return ExportRequest(model, args, kwargs, shapes)


def export_method(method: str, request: ExportRequest) -> ExportedProgram:
    """The program of one method. An example of size 1 on a dynamic dim is repeated, for torch.export would fix that.

    Raises `LoweringError` if torch.export fails (chained).
    """
    if isinstance(request.model, ExportedProgram):
        return request.model
    model, shapes = request.model, request.dynamic_shapes
    examples = free_examples(model, Examples(request.args or (), dict(request.kwargs or {})), shapes)
    with without_kv_cache(model, examples.args, examples.kwargs):
        return _exported(method, model, examples, shapes)


def _exported(method: str, model: torch.nn.Module, examples: Examples, shapes: DynamicShapes) -> ExportedProgram:
    try:
        program, assigned = _traced(model, examples, shapes)
    except Exception as cause:  # torch.export raises whatever tracing the user's code raises
        why = why_export_failed(model, examples.args, examples.kwargs, cause)
        if examples.resized:
            places = ", ".join(examples.resized)
            why += f"\n  an example of size 1 on a dynamic dim was made longer for exporting: {places}"
        raise LoweringError(f"torch.export of method {method!r} failed: {why}", location=user_line(cause)) from cause
    if assigned:
        check_second_call(method, model, examples, program, assigned, lambda later: _traced(later, examples, shapes)[0])
    _name_dims(program, pytree.tree_leaves((examples.args, examples.kwargs)), dim_names(model, examples, shapes))
    return program


def _traced(
    model: torch.nn.Module, examples: Examples, shapes: DynamicShapes
) -> tuple[ExportedProgram, Sequence[Assignment]]:
    """The program, and what `forward` assigns that it does not keep.

    torch.export's strict mode is no second way: it knows no more of a model's tensors, and forgets what is assigned to
    buffers too (torch 2.13).
    """
    with quiet_torch(), kept_state(model) as state:
        program = torch.export.export(
            model,
            examples.args,
            dict(examples.kwargs),
            dynamic_shapes=dict(shapes) if isinstance(shapes, Mapping) else shapes,
        )
    return with_own_tensors(without_unread(program), model), state.assigned


def _name_dims(program: ExportedProgram, examples: Sequence[object], names: Mapping[int, dict[int, str]]) -> None:
    """Note `names`, by the identity of the example tensor, on the placeholders of the inputs."""
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for name, example in zip(program.graph_signature.user_inputs, examples, strict=True):
        if id(example) in names and name in placeholders:
            placeholders[name].meta[DIM_NAMES] = names[id(example)]
