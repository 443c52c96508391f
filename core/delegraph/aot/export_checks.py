"""A user's arguments for exporting, and the exported program -> nothing, or an error that says what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter, signature
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot.module_stack import module_path
from delegraph.errors import LoweringError
from delegraph.program.alternatives import is_reserved

__all__ = [
    "check_arguments",
    "check_dynamic_shapes",
    "check_fitting",
    "check_mode",
    "check_model",
    "check_names",
    "check_tuple",
]


# ---- before it is exported ------------------------------------------------------------------------------------------


def check_names(methods: Iterable[object]) -> None:
    """Raises `LoweringError` for what cannot be a method's name."""
    for name in methods:
        if not isinstance(name, str) or not name:
            raise LoweringError(f"a method's name is a text, not {name!r}")
        if is_reserved(name):
            raise LoweringError(
                f"a method cannot be called {name!r}: that is what alternatives of delegates are called"
            )


def check_model(method: str, model: object) -> None:
    """Raises `LoweringError` for what is not a module that can be exported."""
    if isinstance(model, torch.jit.ScriptModule):
        raise LoweringError(
            f"method {method!r}: {type(model).__name__} is TorchScript, which cannot be exported; give the nn.Module"
            " that it was made of"
        )
    if not isinstance(model, torch.nn.Module):
        raise LoweringError(f"method {method!r}: expected an nn.Module or an ExportedProgram, not {_told(model)}")


def _told(model: object) -> str:
    name = type(model).__name__
    if isinstance(model, type):
        return f"the class {model.__name__}; make one, {model.__name__}(…)"
    if isinstance(model, (str, bytes)) or hasattr(model, "__fspath__"):
        return f"{name}; load the model from its file first: torch.export.load(path) if that is a .pt2"
    if isinstance(model, torch.Tensor):
        return f"{name}; a state dict is loaded into a model first: model.load_state_dict(…)"
    return f"{name}; write it as the forward of an nn.Module" if callable(model) else name


def check_tuple(method: str, args: object) -> None:
    """Raises `LoweringError` for example arguments that are no sequence."""
    if args is not None and not isinstance(args, (tuple, list)):
        raise LoweringError(
            f"method {method!r}: example arguments are a tuple, not {type(args).__name__}; for one argument write (x,)"
        )


def check_arguments(
    method: str, model: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Raises `LoweringError` for arguments that `forward` does not take, and for arrays and shapes in their place."""
    forward = signature(model.forward)
    try:
        forward.bind(*args, **kwargs)
    except TypeError as error:
        raise LoweringError(
            f"method {method!r}: {type(model).__name__}.forward takes {forward}, and the example arguments do not fit:"
            f" {error}{_if_a_shape(args)}"
        ) from error
    for place, value in (*enumerate(args), *kwargs.items()):
        if type(value).__module__ == "numpy" and hasattr(value, "__array_interface__"):
            raise LoweringError(
                f"method {method!r}: example argument {place} is a NumPy {type(value).__name__}, and a model takes"
                " tensors: torch.from_numpy(array)"
            )


def _if_a_shape(args: tuple[object, ...]) -> str:
    if not args or not all(type(size) is int for size in args):
        return ""
    return f"; these are numbers: for an example of that shape write (torch.randn({', '.join(map(str, args))}),)"


def check_dynamic_shapes(method: str, model: torch.nn.Module, shapes: object) -> None:
    """Raises `LoweringError` for a mapping that names something else than arguments."""
    parameters = signature(model.forward).parameters.values()
    names = [parameter.name for parameter in parameters]
    gathers = any(parameter.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL) for parameter in parameters)
    if not isinstance(shapes, Mapping) or gathers:
        return
    unknown = ", ".join(repr(key) for key in shapes if key not in names)
    if unknown:
        example = f"{{{names[0]!r}: {{0: Dim('batch', max=16)}}}}" if names else "{}"
        raise LoweringError(
            f"method {method!r}: dynamic_shapes has {unknown}, and the arguments are {', '.join(names) or 'none'}; it"
            f" goes by argument, then by dim: {example}"
        )


def check_fitting(method: str, program: ExportedProgram, args: Any, kwargs: Mapping[str, object]) -> None:
    """Raises `LoweringError` for example arguments that a program, exported already, does not take."""
    check_tuple(method, args)
    named = program.call_spec.in_spec.child(1).context if program.call_spec.in_spec is not None else ()
    orders = (named, program.graph_signature.user_inputs)  # of those by name; or all of them are
    in_order = next(({name: kwargs[name] for name in order} for order in orders if {*order} == {*kwargs}), kwargs)
    examples = pytree.tree_leaves((tuple(args or ()), in_order))
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    inputs = [values.get(name, name) for name in program.graph_signature.user_inputs]
    fits = len(examples) == len(inputs) and all(
        _fits(example, value, program.range_constraints) for example, value in zip(examples, inputs, strict=True)
    )
    if not fits:
        raise LoweringError(
            f"method {method!r} is exported already, and takes ({', '.join(map(_shown, inputs))}); the example"
            f" arguments are ({', '.join(map(_shown, examples))}). Leave them out, or export or quantize the model with"
            " examples like these, and the dims that vary in dynamic_shapes"
        )


def _fits(example: object, value: object, ranges: Mapping[Any, Any]) -> bool:
    """Whether `example` can be an input whose value, with symbols for the dims that vary, is `value`."""
    if isinstance(value, torch.Tensor):
        return (
            isinstance(example, torch.Tensor)
            and example.dtype == value.dtype
            and example.dim() == value.dim()
            and all(_fits(size, expected, ranges) for size, expected in zip(example.shape, value.shape, strict=True))
        )
    if isinstance(value, torch.SymInt):
        allowed = ranges.get(value.node.expr)
        return isinstance(example, int) and (allowed is None or int(example) in allowed)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return isinstance(example, (int, float))
    return bool(example == value)


def _shown(value: object) -> str:
    """`float32[2, 3]`; a dim that varies by its symbol."""
    if not isinstance(value, torch.Tensor):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


# ---- behind it ------------------------------------------------------------------------------------------------------


def check_mode(method: str, model: object, program: ExportedProgram) -> None:
    """Raises `LoweringError` for a model that was exported in training mode and computes something else in it.

    Dropout that `forward` itself applies in evaluation mode is intended; so is whatever an exported program does.
    """
    if isinstance(model, torch.nn.Module):
        differing = ", ".join(dict.fromkeys(_training(model, program)))
        if differing:
            raise LoweringError(
                f"method {method!r}: the model is in training mode, in which {differing} computes something else than"
                " when the model is used; call model.eval() before it is lowered"
            )


def _training(model: torch.nn.Module, program: ExportedProgram) -> Iterator[str]:
    modules = dict(model.named_modules())
    for node in program.graph.nodes:
        path = module_path(node)
        owner = modules.get(path)
        if owner is not None and owner.training and _differs(node):
            yield f"{path} ({type(owner).__name__})" if path else type(owner).__name__


# The operators whose results differ in training, and the argument without which they do not.
_MATTERS = {
    "aten::alpha_dropout": "p",
    "aten::batch_norm": "running_mean",
    "aten::dropout": "p",
    "aten::feature_alpha_dropout": "p",
    "aten::feature_dropout": "p",
    "aten::gru": "dropout",
    "aten::lstm": "dropout",
    "aten::rnn_relu": "dropout",
    "aten::rnn_tanh": "dropout",
    "aten::rrelu": "upper",
}


def _differs(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.name not in _MATTERS:
        return False
    names = [argument.name for argument in target._schema.arguments]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    trains = arguments.get("train", arguments.get("training", False))
    return bool(trains) and bool(arguments.get(_MATTERS[target._schema.name]))
