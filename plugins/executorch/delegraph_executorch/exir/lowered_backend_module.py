"""ExecuTorch's `executorch.exir.lowered_backend_module`: lowered modules in a graph, and cutting one out by hand.

`delegraph.aot.to_backend` cuts by itself; the functions below are for passes that move some nodes of a graph into a
submodule for a purpose of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate, get_lowered_module_name
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.tools_common import legalize_graph
from torch.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule, insert_subgm, topo_sort
from torch.utils import _pytree as pytree

from delegraph.aot import LoweredBackendModule, get_lowered_module, is_delegate_call
from delegraph.errors import InvalidPartition

__all__ = [
    "LoweredBackendModule",
    "arrange_graph_outputs",
    "arrange_graph_placeholders",
    "create_exported_program_from_submodule",
    "create_submodule_from_nodes",
    "executorch_call_delegate",
    "get_lowered_backend_modules",
    "get_lowered_module_name",
    "get_lowered_submodules",
]

# ---- what is in a graph ----------------------------------------------------------------------------


def get_lowered_submodules(graph_module: GraphModule) -> list[tuple[str, LoweredBackendModule, Node]]:
    """(name, lowered module, call) of the delegate calls in the module's own graph."""
    return [
        (_name(call), get_lowered_module(graph_module, call), call)
        for call in graph_module.graph.nodes
        if is_delegate_call(call)
    ]


def get_lowered_backend_modules(graph_module: GraphModule) -> list[LoweredBackendModule]:
    """The lowered modules that the module's own graph calls."""
    return [lowered for _, lowered, _ in get_lowered_submodules(graph_module)]


def _name(call: Node) -> str:
    reference = call.args[0]
    assert isinstance(reference, Node)
    return str(reference.target)


# ---- cutting nodes out -----------------------------------------------------------------------------


def create_submodule_from_nodes(
    gm: GraphModule, node_list: Sequence[Node], tag: str, skip_legalize_graph: bool = False
) -> tuple[GraphModule, Node]:
    """Move nodes of `gm` into a submodule `fused_<tag>`, in place; the submodule, and the node that calls it.

    The submodule returns a list, and what read the nodes reads its elements. Raises `InvalidPartition` for nodes that
    cannot run as one.
    """
    nodes, name = topo_sort(list(node_list)), f"fused_{tag}"
    try:
        submodule, inputs, outputs = fuse_as_graphmodule(gm, nodes, name)
    except AssertionError as error:
        names = ", ".join(node.name for node in nodes[:8])
        raise InvalidPartition(f"these nodes cannot run as one, {names}: {error}") from error
    _return_a_list(submodule)
    insert_subgm(gm, submodule, inputs, outputs)
    call = next(node for node in gm.graph.find_nodes(op="call_module", target=name))
    if len(outputs) == 1 and not isinstance(outputs[0].meta.get("val"), (list, tuple)):
        with gm.graph.inserting_after(call):
            element = gm.graph.call_function(operator.getitem, (call, 0))
        element.meta = {"val": call.meta["val"]}
        call.replace_all_uses_with(element, delete_user_cb=lambda user: user is not element)
    for element in call.users:
        element.meta.pop("nn_module_stack", None)  # of the last node that was moved, not of this one
        element.meta.pop("source_fn_stack", None)
    erase_nodes(gm, nodes)
    if not skip_legalize_graph:
        legalize_graph(gm)
        call = next(node for node in gm.graph.find_nodes(op="call_module", target=name))
    return submodule, call


def _return_a_list(submodule: GraphModule) -> None:
    """Let the graph return a list: of its result, or of the elements of the one tuple that it gives."""
    output = submodule.graph.output_node()
    result: Any = output.args[0]
    value = result.meta.get("val") if isinstance(result, Node) else None
    if isinstance(value, (list, tuple)):
        with submodule.graph.inserting_before(output):
            result = [submodule.graph.call_function(operator.getitem, (result, i)) for i in range(len(value))]
        for element, own in zip(result, value, strict=True):
            element.meta["val"] = own
    output.args = (pytree.tree_leaves(result),)
    submodule.recompile()


def arrange_graph_placeholders(gm: GraphModule, owning_program: ExportedProgram, tag: str) -> GraphModule:
    """Bring the placeholders of `gm`, a part of `owning_program`, in order: its own parameters, its own buffers (those
    tagged `tag`), then inputs."""
    signature = owning_program.graph_signature
    placeholders = gm.graph.find_nodes(op="placeholder")

    def rank(node: Node) -> int:
        is_own = node.meta.get("delegation_tag") == tag
        return (
            0
            if is_own and node.name in signature.inputs_to_parameters
            else (1 if is_own and node.name in signature.inputs_to_buffers else 2)
        )

    graph, copies = Graph(), dict[Node, Node]()
    for node in (*sorted(placeholders, key=rank), *(n for n in gm.graph.nodes if n.op != "placeholder")):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.lint()
    graph.set_codegen(gm.graph._codegen)
    gm.graph = graph
    return gm


def arrange_graph_outputs(gm: GraphModule, output_specs: list[OutputSpec], call_module_node: Node) -> GraphModule:
    """Bring what `gm` returns in order, mutations first; `output_specs` and the elements that are read of the call too.

    Raises `RuntimeError` where the graph returns another number of values than there are specs.
    """
    output = gm.graph.output_node()
    values = list(output.args[0])  # type: ignore[arg-type]
    if len(values) != len(output_specs):
        raise RuntimeError(f"the graph returns {len(values)} values, its signature has {len(output_specs)}")
    mutations = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    order = sorted(range(len(values)), key=lambda i: output_specs[i].kind not in mutations)
    output.args = (tuple(values[i] for i in order),)
    output_specs[:] = [output_specs[i] for i in order]
    place = {old: new for new, old in enumerate(order)}
    for element in list(call_module_node.users):
        if element.target is operator.getitem:
            element.args = (call_module_node, place[element.args[1]])  # type: ignore[index]
    gm.graph.lint()
    return gm


def create_exported_program_from_submodule(
    submodule: GraphModule, owning_program: ExportedProgram, tag: str, call_module_node: Node, is_submodule: bool
) -> tuple[ExportedProgram, dict[str, InputSpec], dict[str, OutputSpec]]:
    """The submodule that `create_submodule_from_nodes` made as a program, with what carries `tag` of the weights.

    Also the input specs, by placeholder, and the output specs, by output, that `owning_program` does not need any more.
    In a body of control flow (`is_submodule`) everything stays an input.
    """
    submodule = arrange_graph_placeholders(submodule, owning_program, tag)
    signature = owning_program.graph_signature
    known = {} if is_submodule else {spec.arg.name: spec for spec in signature.input_specs}
    inputs, taken = [], {}
    for node in submodule.graph.find_nodes(op="placeholder"):
        spec = known.get(node.name)
        is_own = spec is not None and node.meta.get("delegation_tag") == tag and spec.kind is not InputKind.USER_INPUT
        if is_own:
            taken[node.name] = spec
        inputs.append(spec if is_own else InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
    owned = {spec.target for spec in taken.values() if spec is not None}
    state = {name: held for name, held in owning_program.state_dict.items() if name in owned}
    constants = {name: held for name, held in owning_program.constants.items() if name in owned}
    outputs, written = _output_specs(
        submodule, {} if is_submodule else _write_backs(signature, owned), call_module_node
    )
    arrange_graph_outputs(submodule, outputs, call_module_node)
    made = ExportGraphSignature(inputs, outputs)  # type: ignore[arg-type]
    in_spec = pytree.tree_structure((tuple(made.user_inputs), {}))
    out_spec = pytree.tree_structure(list(made.user_outputs))
    program = ExportedProgram(
        root=submodule,
        graph=submodule.graph,
        graph_signature=made,
        state_dict=state,
        range_constraints=dict(owning_program.range_constraints),
        module_call_graph=[ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))],
        constants=constants,
        verifiers=[owning_program.verifier],
    )
    return program, taken, written  # type: ignore[return-value]


def _write_backs(signature: ExportGraphSignature, owned: set[str | None]) -> dict[str, OutputSpec]:
    """By the value that is written, the specs of the outputs that write owned buffers."""
    specs = (spec for spec in signature.output_specs if spec.kind is OutputKind.BUFFER_MUTATION)
    return {spec.arg.name: spec for spec in specs if spec.target in owned}


def _output_specs(
    submodule: GraphModule, write_backs: dict[str, OutputSpec], call: Node
) -> tuple[list[OutputSpec], dict[str, OutputSpec]]:
    """The specs of what the submodule returns, and those of `write_backs` that it takes over."""
    elements = {user.args[1]: user.name for user in call.users if user.target is operator.getitem}
    specs, written = [], {}
    for position, value in enumerate(submodule.graph.output_node().args[0]):  # type: ignore[arg-type]
        spec = write_backs.get(elements.get(position, ""))
        if not isinstance(value, Node):
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", value), None))
        elif spec is None:
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(value.name), None))
        else:
            specs.append(OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(value.name), spec.target))
            written[spec.arg.name] = spec
    return specs, written
