"""A module made from a program + that program -> a program for the same inputs, dynamic in the same sizes.

`torch.export` is told which sizes are dynamic. It finds the relations between them (`y` is one longer than `x`) again,
because a module made from a program asserts them; the limits are the first program's, to the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from delegraph.aot.graph.bodies import attributes, bodies, graph_modules
from delegraph.aot.quantize.weights.body_weights import weights_out_of_bodies
from delegraph.aot.quantize.weights.names import name_constants
from delegraph.aot.torch_internals import ValueRanges
from delegraph.errors import LoweringError

__all__ = ["exported_again", "flat_inputs", "positional_inputs"]


def exported_again(method: str, module: GraphModule, program: ExportedProgram) -> ExportedProgram:
    """`module`, without the weights that it does not read, as a program; what bodies of control flow have they are
    given then.

    Raises `LoweringError` if `program` has no example inputs or torch.export fails.
    """
    if program.example_inputs is None:
        raise LoweringError(
            f"method {method!r} was exported without its example inputs, which quantizing needs: export it again"
        )
    args, kwargs = program.example_inputs
    for _, part in graph_modules(module):
        name_constants(part)
    _drop_unread(module)  # whose names are free then for what bodies have
    weights_out_of_bodies(module)
    _drop_unread(module)
    module.recompile()
    try:
        again = torch.export.export(module, args, kwargs, dynamic_shapes=_dynamic_shapes(program, kwargs))
    except Exception as cause:
        raise LoweringError(f"torch.export of the quantized method {method!r} failed: {cause}") from cause
    limits = {**again.range_constraints}
    for new, old in zip(_input_values(again), _input_values(program), strict=True):
        for ours, theirs in zip(_sizes(new), _sizes(old), strict=True):
            if isinstance(ours, torch.SymInt) and isinstance(theirs, torch.SymInt):
                limits[ours.node.expr] = _limits(theirs, program)
    again._range_constraints = limits
    return again


def positional_inputs(program: ExportedProgram) -> int:
    """How many of the inputs are passed by position."""
    return len(program.call_spec.in_spec.child(0).children())


def _drop_unread(module: GraphModule) -> None:
    """Take out the parameters and buffers that no call reads, of the bodies in it as well."""
    for _, part in graph_modules(module):
        read, of_bodies = attributes(part), tuple(f"{name}." for name in bodies(part))
        tensors = [*part.named_parameters(remove_duplicate=False), *part.named_buffers(remove_duplicate=False)]
        for name, _ in tensors:
            if name not in read and not name.startswith(of_bodies):
                path, _, attribute = name.rpartition(".")
                delattr(part.get_submodule(path), attribute)


def flat_inputs(program: ExportedProgram, arguments: tuple[Sequence[object], Mapping[str, object]]) -> list[object]:
    """The leaves of the arguments of one call, in the order of the program's inputs."""
    args, kwargs = arguments
    order = program.call_spec.in_spec.child(1).context or ()
    return pytree.tree_leaves((tuple(args), {name: kwargs[name] for name in order}))


def _dynamic_shapes(program: ExportedProgram, kwargs: Mapping[str, object]) -> tuple[object, ...] | None:
    """`dynamic_shapes` for `torch.export`: for every input, in order, the dims that are dynamic."""
    dims = [_dynamic_dims(value, program) for value in _input_values(program)]
    if not any(dims):
        return None
    args, by_name = pytree.tree_unflatten(dims, program.call_spec.in_spec)
    return (*args, *(by_name[name] for name in kwargs))


def _dynamic_dims(value: object, program: ExportedProgram) -> object:
    if isinstance(value, torch.SymInt):
        return Dim.DYNAMIC
    dims = {d: size for d, size in enumerate(_sizes(value)) if isinstance(size, torch.SymInt)}
    return {d: _dim(_limits(size, program)) for d, size in dims.items()} or None


def _dim(limits: ValueRanges[sympy.Expr]) -> object:
    lower, upper = limits.lower, limits.upper
    return Dim.DYNAMIC(
        min=int(lower) if isinstance(lower, sympy.Integer) else None,
        max=int(upper) if isinstance(upper, sympy.Integer) else None,
    )


def _limits(size: torch.SymInt, program: ExportedProgram) -> ValueRanges[sympy.Expr]:
    expression = size.node.expr
    known = program.range_constraints.get(expression)
    limits: ValueRanges[sympy.Expr] = size.node.shape_env.bound_sympy(expression) if known is None else known
    return limits


def _input_values(program: ExportedProgram) -> Iterator[object]:
    """The user's inputs, as they stand in the graph."""
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            yield values[spec.arg.name]


def _sizes(value: object) -> tuple[object, ...]:
    """The sizes of a tensor; of a number, itself."""
    return tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)
