"""Passes on an exported program, and the small edits around them (ExecuTorch `exir/program`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule
from torch.fx.node import map_arg

from delegraph.errors import LoweringError
from delegraph_executorch.bridge.passes import adapted_pass


def _transform(self: ExportedProgram, *passes: Any, override_verifiers: list[Any] | None = None) -> ExportedProgram:
    """`self` after the passes, in order; itself if none of them changed anything.

    Raises `LoweringError` for a list where passes are meant, and what a pass raises.
    """
    if any(isinstance(graph_pass, (list, tuple)) for graph_pass in passes):
        raise LoweringError("_transform takes passes one by one: _transform(program, first, second)")
    program = self
    for graph_pass in map(adapted_pass, passes):
        result = graph_pass(program) if _takes_programs(graph_pass) else graph_pass(program.graph_module)
        if result is None or not result.modified:
            continue
        changed = getattr(result, "exported_program", None)
        program = changed or _update_exported_program_graph_module(program, result.graph_module, override_verifiers)
    return program


def _takes_programs(graph_pass: Any) -> bool:
    from delegraph.aot import ExportedProgramPassBase

    return isinstance(graph_pass, ExportedProgramPassBase)


def transform_exported_program(ep: ExportedProgram, *passes: Any) -> ExportedProgram:
    """`_transform`."""
    return _transform(ep, *passes)


def with_values(programs: Any) -> Any:
    """`programs`, one or several by method; calls that code of ExecuTorch left without a value have one, in place.

    There it does not matter: `to_edge` traces all of a graph anew, and emission never looks.
    """
    for program in programs.values() if isinstance(programs, Mapping) else [programs]:
        for node in program.graph.nodes if isinstance(program, ExportedProgram) else ():
            sources = [source.meta.get("val") for source in node.all_input_nodes]
            known = all(source is not None for source in sources)
            if node.op == "call_function" and "val" not in node.meta and known:
                args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda source: source.meta["val"])
                with detect_fake_mode(sources) or nullcontext():
                    node.meta["val"] = node.target(*args, **kwargs)
    return programs


def _get_updated_graph_signature(old_signature: ExportGraphSignature, new_gm: GraphModule) -> ExportGraphSignature:
    """The signature of a graph whose placeholders and outputs are the old ones in order, under new names."""
    new = copy.deepcopy(old_signature)
    for spec, node in zip(new.input_specs, new_gm.graph.find_nodes(op="placeholder"), strict=True):
        if hasattr(spec.arg, "name"):
            spec.arg.name = node.name
    name_outputs(new, new_gm)
    return new


def name_outputs(signature: ExportGraphSignature, graph_module: GraphModule) -> None:
    """Let the signature name, in place, what the graph returns."""
    returned: Any = graph_module.graph.output_node().args[0]
    for index, (spec, value) in enumerate(zip(signature.output_specs, returned, strict=True)):
        if hasattr(spec.arg, "name") and isinstance(value, torch.fx.Node):
            signature.output_specs[index] = replace(spec, arg=replace(spec.arg, name=value.name))


def _update_exported_program_graph_module(
    exported_program: ExportedProgram, gm: GraphModule, override_verifiers: list[Any] | None = None
) -> ExportedProgram:
    """`exported_program` with another graph of the same inputs and outputs, checked by its verifiers."""
    new = ExportedProgram(
        root=gm,
        graph=gm.graph,
        graph_signature=_get_updated_graph_signature(exported_program.graph_signature, gm),
        state_dict=exported_program.state_dict,
        range_constraints=copy.deepcopy(exported_program.range_constraints),
        module_call_graph=copy.deepcopy(exported_program.module_call_graph),
        example_inputs=exported_program.example_inputs,
        constants=exported_program.constants,
        verifiers=override_verifiers or [exported_program.verifier],
    )
    new.graph_module.meta.update({**exported_program.graph_module.meta, **gm.meta})
    return new


def _copy_module(new_prog: GraphModule, new_gm: GraphModule) -> None:
    """Give `new_prog`, in place, the graph of `new_gm` and what that refers to."""
    new_prog.meta.update(new_gm.meta)
    new_prog.graph = new_gm.graph
    for name, _ in list(new_prog.named_children()):
        delattr(new_prog, name)
    for name, module in new_gm.named_children():
        setattr(new_prog, name, module)
    for node in new_gm.graph.find_nodes(op="get_attr"):
        held = getattr(new_gm, str(node.target), None)
        if isinstance(held, torch.Tensor):
            setattr(new_prog, str(node.target), held)


def lift_constant_tensor_pass(ep: ExportedProgram) -> ExportedProgram:
    """Make the tensors that the graph refers to by `get_attr` buffers of the program, in place."""
    graph, module = ep.graph, ep.graph_module
    placeholders = graph.find_nodes(op="placeholder")
    held = {node: getattr(module, str(node.target), None) for node in graph.find_nodes(op="get_attr")}
    if not placeholders or not any(isinstance(tensor, torch.Tensor) for tensor in held.values()):
        return ep
    user_inputs = set(ep.graph_signature.user_inputs)
    first = next((node for node in placeholders if node.name in user_inputs), next(iter(graph.nodes)))
    lifted: list[InputSpec] = []
    for node, tensor in held.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        name = f"_lifted_tensor_constant{len(ep.graph_signature.buffers) + len(lifted)}"
        with graph.inserting_before(first):
            placeholder = graph.placeholder(name)
        placeholder.meta = dict(node.meta)
        placeholder.meta.setdefault("val", tensor)
        node.replace_all_uses_with(placeholder)
        graph.erase_node(node)
        lifted.append(InputSpec(InputKind.BUFFER, TensorArgument(placeholder.name), name, True))
        ep.state_dict[name] = tensor
    specs = list(ep.graph_signature.input_specs)
    at = next((i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), 0)
    ep.graph_signature.input_specs = [*specs[:at], *lifted, *specs[at:]]
    module.recompile()
    return ep


def get_fake_program(real_exported_program: ExportedProgram) -> ExportedProgram:
    """A copy of a program whose parameters and buffers are fake tensors; lifted constants are shared.

    Raises AssertionError where its placeholders have no fake tensors.
    """
    mode = detect_fake_mode([node.meta.get("val") for node in real_exported_program.graph.find_nodes(op="placeholder")])
    if mode is None:
        raise AssertionError("the program's placeholders have no fake tensors: export it with torch.export.export")
    state: dict[str, torch.Tensor] = {
        name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in real_exported_program.state_dict.items()
    }
    module = copy.deepcopy(real_exported_program.graph_module)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(real_exported_program.graph_signature),
        state_dict=state,
        range_constraints=copy.deepcopy(real_exported_program.range_constraints),
        module_call_graph=copy.deepcopy(real_exported_program.module_call_graph),
        constants=real_exported_program.constants,
        verifiers=[real_exported_program.verifier],
    )


def update_to_real_program(fake_exported_program: ExportedProgram, real_exported_program: ExportedProgram) -> None:
    """Give a fake program, in place, the real one's parameters and buffers."""
    fake_exported_program._state_dict.update(real_exported_program.state_dict)
