"""An operator's name in a program -> torch's functions for it.

An operator can stand in a program if it writes into out arguments, works in place, or gives a scalar. Where torch has
only the functional operator, its out variant is called by torch's rule of names, `X_out` for the overload `X`, and its
results are copied: `quantized_decomposed::*`, and custom operators whose author wrote no out variant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import torch
from torch._ops import OpOverload, OpOverloadPacket

from delegraph_aten.dim_order_ops import DIM_ORDER_OPS
from delegraph_aten.substitutes import SUBSTITUTES, Substitute
from delegraph_aten.values import Convert, converter

_DEFINED_IN: Final = {"quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
"""Modules of torch that define a namespace and are imported only when it is asked for."""

_SCALARS: Final = frozenset({"IntType", "FloatType", "BoolType", "NumberType"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operator's schema; `convert` makes a program's value torch's (None: it is that already)."""

    name: str
    convert: Convert | None
    keyword: bool


@dataclass(frozen=True, slots=True)
class TorchOperator:
    """How torch runs an operator of a program, whose arguments are `inputs`, then `outs`.

    `into` writes into the outs, or works in place, or returns a scalar. `functional` returns new tensors for the outs;
    it is given where `into` is not, or where `into` is no more than `functional` and a copy. `view` shows what is to be
    copied. `substitute` stands for all of them in its dtypes.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outs: tuple[str, ...]
    into: Callable[..., Any] | None
    functional: Callable[..., Any] | None = None
    view: Callable[..., Any] | None = None
    substitute: Substitute | None = None
    shape_is_known: bool = False
    """The shapes of the outs follow from everything else than the content of tensors."""
    shapes: dict[object, list[Any]] = field(default_factory=dict, compare=False, repr=False)
    """The shapes of the outs that were met, by the key of the arguments; lists of shapes for outs that are lists."""


def find_operator(name: str) -> TorchOperator | None:
    """The operator that is called `name` in programs, or None where torch has no such."""
    if name in DIM_ORDER_OPS:
        schema, function = DIM_ORDER_OPS[name]
        return _writing(name, torch._C.parse_schema(schema), function)
    namespace, _, rest = name.partition("::")
    base, _, overload_name = rest.partition(".")
    if namespace in _DEFINED_IN:
        import_module(_DEFINED_IN[namespace])
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if not isinstance(packet, OpOverloadPacket):
        return None
    overload = getattr(packet, overload_name or "default", None)
    functional = _functional(packet, overload_name)
    if not isinstance(overload, OpOverload):
        return None if functional is None else _copying(name, functional)
    if functional is not None and not _same_inputs(overload._schema, functional._schema):
        functional = None
    return _of_overload(name, overload, functional) if _can_stand_in_programs(overload._schema) else None


def operator_names() -> frozenset[str]:
    """The names by which programs could call torch's present operators."""
    names = set(DIM_ORDER_OPS)
    for schema in torch._C._jit_get_all_schemas():
        if _can_stand_in_programs(schema):
            names.add(f"{schema.name}.{schema.overload_name}".rstrip("."))
        elif not schema.name.startswith("aten::") and _gives_tensors(schema):
            overload = schema.overload_name
            for written in (overload, overload.capitalize()):  # ExecuTorch's `Tensor_out` is torch's `tensor`
                names.add(f"{schema.name}.{written}_out".replace("._out", ".out"))
    return frozenset(names)


def _of_overload(name: str, overload: OpOverload, functional: OpOverload | None) -> TorchOperator:
    if overload.namespace != "aten":
        return _writing(name, overload._schema, _call(overload))
    generated = torch.Tag.generated in overload.tags
    tags = {*overload.tags, *(functional.tags if functional is not None else ())}
    return _writing(
        name,
        overload._schema,
        _call(overload),
        functional=_call(functional) if functional is not None and generated else None,
        view=_view_of(overload),
        substitute=SUBSTITUTES.get(name),
        shape_is_known=not generated and tags.isdisjoint(_CONTENT_DECIDES),
    )


_CONTENT_DECIDES: Final = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def _writing(name: str, schema: torch.FunctionSchema, into: Callable[..., Any], **known: Any) -> TorchOperator:
    inputs = tuple(_parameter(argument) for argument in schema.arguments if not _is_out(argument))
    outs = tuple(argument.name for argument in schema.arguments if _is_out(argument))
    return TorchOperator(name, inputs, outs, into, **known)


def _copying(name: str, functional: OpOverload) -> TorchOperator:
    schema = functional._schema
    inputs = tuple(map(_parameter, schema.arguments))
    outs = tuple(f"out{position}" for position, _ in enumerate(schema.returns))
    return TorchOperator(name, inputs, outs, None, _call(functional))


def _parameter(argument: torch.Argument) -> Parameter:
    return Parameter(argument.name, converter(argument), argument.kwarg_only)


def _call(overload: OpOverload) -> Callable[..., Any]:
    """The function behind `overload`, which spares a frame of Python, without recording of gradients.

    Tensors over planned memory require none, so torch's own operators record nothing; those of others may hold
    parameters.
    """
    call: Callable[..., Any] = overload._op
    return call if overload.namespace == "aten" else torch.no_grad()(call)


def _functional(packet: OpOverloadPacket[Any, Any], out_name: str) -> OpOverload | None:
    """The overload that returns new tensors where the overload called `out_name` writes into its outs.

    Case is not looked at: ExecuTorch's `quantized_decomposed::dequantize_per_tensor.Tensor_out` is torch's `tensor`.
    """
    overload_name = "default" if out_name == "out" else out_name.removesuffix("_out")
    matching = next((name for name in packet.overloads() if name.lower() == overload_name.lower()), None)
    if matching is None or overload_name == out_name:
        return None
    overload: OpOverload = getattr(packet, matching)
    return overload if _gives_tensors(overload._schema) else None


def _view_of(copy: OpOverload) -> OpOverload | None:
    """The view operator of a copying one: aten::permute for aten::permute_copy.out."""
    base = copy._schema.name.partition("::")[2]
    packet = getattr(torch.ops.aten, base.removesuffix("_copy"), None) if base.endswith("_copy") else None
    if not isinstance(packet, OpOverloadPacket):
        return None
    for name in packet.overloads():
        overload: OpOverload = getattr(packet, name)
        schema = overload._schema
        aliases = all(result.alias_info is not None for result in schema.returns)
        if aliases and not schema.is_mutable and _same_inputs(copy._schema, schema):
            return overload
    return None


def _is_out(argument: torch.Argument) -> bool:
    return argument.is_out and argument.kwarg_only


def _same_inputs(out: torch.FunctionSchema, functional: torch.FunctionSchema) -> bool:
    """Whether the two take the same arguments but for outs."""
    return [(a.name, str(a.type)) for a in out.arguments if not _is_out(a)] == [
        (a.name, str(a.type)) for a in functional.arguments
    ]


def _can_stand_in_programs(schema: torch.FunctionSchema) -> bool:
    gives_scalar = len(schema.returns) == 1 and schema.returns[0].type.kind() in _SCALARS
    return schema.is_mutable or gives_scalar


def _gives_tensors(schema: torch.FunctionSchema) -> bool:
    """Whether it only returns tensors, new ones."""
    aliases = any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))
    return bool(schema.returns) and not aliases and all("Tensor" in str(result.type) for result in schema.returns)
