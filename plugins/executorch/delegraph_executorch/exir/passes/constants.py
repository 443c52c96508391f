"""Passes on constants: computed ahead of time, marked, made outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputSpec, TensorArgument
from torch.fx import Node
from torch.fx.node import map_arg

from delegraph.aot import EdgeOpOverload, ResolvedSignature, WeightsToOutputs, exir_ops
from delegraph_executorch.exir.dialect_ops import _QUANT_PRIMITIVES
from delegraph_executorch.exir.graph_module import no_dispatch
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

_CONSTANTS = (float, int, bool, str, torch.Tensor, torch.device, torch.dtype, torch.layout)


class ConstPropPass(ExportPass):
    """Folds what depends on constants of the graph; with `propogate_quant`, quantize and dequantize calls alone."""

    def __init__(self, propogate_quant: bool = False) -> None:
        super().__init__()
        self.propogate_quant = propogate_quant

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> Any:
        """The result itself where all arguments are constants: it becomes an argument of what follows."""
        if (op in _QUANT_PRIMITIVES) is not self.propogate_quant or not _is_const([args, kwargs]):
            return super().call_operator(op, args, kwargs, meta)
        with no_dispatch():
            return op(*args, **kwargs)


def _is_const(argument: Any) -> bool:
    if isinstance(argument, (tuple, list)):
        return all(map(_is_const, argument))
    if isinstance(argument, dict):
        return all(map(_is_const, argument.values()))
    return isinstance(argument, _CONSTANTS) and not isinstance(argument, FakeTensor)


# Lowering folds by itself (`ExecutorchBackendConfig(do_const_prop=…)`), where the file does not grow by it. This folds
# everything, and makes placeholders.


_PREFIX: Final = "_prop_tensor_constant"


def get_default_skip_targets_no_quant() -> set[Any]:
    """What is not folded by default, quantization aside: what takes more bytes than it says."""
    return {exir_ops.edge.aten.full.default}


def constant_prop_pass(
    exported_program: ExportedProgram, custom_skip_targets: Collection[Any] | None = None, _skip_dim_order: bool = True
) -> ExportedProgram:
    """Fold, in place. `custom_skip_targets` are the operators to leave; by default `full`, and in
    edge programs those of quantization (an ATen program's weights are dequantized, as in ExecuTorch).

    `_skip_dim_order` says which clone stands before an output that would be a constant.
    """
    program = exported_program
    if program.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond):
        logging.warning("constant_prop_pass does not constant propagate in control flow modules")
    values = _constant_values(program, _is_left if custom_skip_targets is None else custom_skip_targets.__contains__)
    if not values:
        return program
    placeholders = program.graph.find_nodes(op="placeholder")  # a node's name may differ: `input` is a builtin's
    specs = {node.name: spec for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True)}
    for node, value in reversed(values.items()):
        if all(user in values for user in node.users):
            _erase(program, node, specs)
        elif node.op != "placeholder":
            _lift(program, node, value, specs)
    inputs = [specs[node.name] for node in program.graph.find_nodes(op="placeholder")]
    outputs = _outputs(
        program, {name for name, spec in specs.items() if spec.kind is not InputKind.USER_INPUT}, _skip_dim_order
    )
    program._graph_signature = ExportGraphSignature(inputs, outputs)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _is_left(op: Any) -> bool:
    return op in get_default_skip_targets_no_quant() or (isinstance(op, EdgeOpOverload) and op in _QUANT_PRIMITIVES)


def _constant_values(program: ExportedProgram, is_left: Callable[[Any], bool]) -> dict[Node, Any]:
    """The constants, and the results of the calls that depend on them alone, in graph order."""
    values: dict[Node, Any] = {
        node: held.tensor for node, held in ResolvedSignature.of(program).constants.items() if held.tensor is not None
    }
    for node in program.graph.nodes:
        if node.op != "call_function" or is_left(node.target) or getattr(node.target, "_schema", None) is None:
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable:
            continue
        if any(source not in values for source in node.all_input_nodes):
            continue
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        with torch.no_grad():
            result = node.target(*args, **kwargs)
        if isinstance(result, torch.Tensor):  # a dim that was expanded has no place in a file
            values[node] = result.contiguous() if 0 in result.stride() else result
    return values


def _erase(program: ExportedProgram, node: Node, specs: dict[str, InputSpec]) -> None:
    """Take a constant out that nothing reads any more."""
    spec = specs.pop(node.name, None)
    if spec is not None:
        program.state_dict.pop(str(spec.target), None)
        program.constants.pop(str(spec.target), None)
    program.graph.erase_node(node)


def _lift(program: ExportedProgram, node: Node, value: torch.Tensor, specs: dict[str, InputSpec]) -> None:
    """Let a placeholder with `value` stand where `node` stood."""
    name = _unused_name(program.constants)
    program.constants[name] = value
    first = _first_user_input(program)
    with program.graph.inserting_before(first):
        lifted = program.graph.placeholder(name)
    mode = node.meta["val"].fake_mode
    lifted.meta = {**node.meta, "val": mode.from_tensor(value, static_shapes=True)}
    node.replace_all_uses_with(lifted)
    program.graph.erase_node(node)
    specs[lifted.name] = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(lifted.name), name, persistent=True)


def _unused_name(constants: Mapping[str, Any]) -> str:
    number = 0
    while f"{_PREFIX}{number}" in constants:
        number += 1
    return f"{_PREFIX}{number}"


def _first_user_input(program: ExportedProgram) -> Node:
    """Behind it no constant may stand; without user inputs, the first call."""
    user_inputs = set(program.graph_signature.user_inputs)
    first: Node = next(node for node in program.graph.nodes if node.op != "placeholder" or node.name in user_inputs)
    return first


def _outputs(program: ExportedProgram, constants: Collection[str], skip_dim_order: bool) -> list[OutputSpec]:
    """The output specs, after a clone was put before each output that is a constant now."""
    clone = exir_ops.edge.aten.clone if skip_dim_order else exir_ops.edge.dim_order_ops._clone_dim_order
    output = program.graph.output_node()
    values, specs = list(cast(list[Any], output.args[0])), list(program.graph_signature.output_specs)
    for i, value in enumerate(values):
        if not isinstance(value, Node) or value.name not in constants:
            continue
        with program.graph.inserting_before(output):
            values[i] = program.graph.call_function(clone.default, (value,))
        values[i].meta["val"] = value.meta["val"]
        specs[i] = OutputSpec(specs[i].kind, TensorArgument(values[i].name), specs[i].target)
    output.args = (tuple(values),)
    return specs


class InitializedMutableBufferPass(ExportPass):
    """Sets `meta["et_init_buffer"]` on placeholders with one of `patterns` in their names.

    Delegraph keeps the first value of every mutable buffer in any case, so that nothing changes here; ExecuTorch drops
    those without the mark.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = patterns

    def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
        """The placeholder, marked."""
        if any(pattern in name for pattern in self.patterns):
            meta["et_init_buffer"] = True
        return super().placeholder(name, arg, meta)


def weights_to_outputs_pass(exported_program: ExportedProgram) -> ExportedProgram:
    """Append them, in place, as `delegraph.aot.WeightsToOutputs` does, and mark `meta["weight_has_gradient"]`."""
    program = WeightsToOutputs()(exported_program).exported_program
    for node in ResolvedSignature.of(program).trained:
        node.meta["weight_has_gradient"] = True
    return program
