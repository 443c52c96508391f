"""GraphModule -> the same, constants tagged with the `.ptd` that they go to.

Lowering takes `ExecutorchBackendConfig(external_constants=…)`, a function from a placeholder to such a name; this is
for graphs that have `meta["spec"]`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node

from delegraph_executorch.exir.pass_base import PassResult

__all__ = [
    "delegate_external_constants_pass",
    "delegate_external_constants_pass_unlifted",
    "external_constants_pass",
    "external_mutable_weights_pass",
]

TagFunction = Callable[[Node], str | None]
_DEFAULT_TAG = "_default_external_constant"


def external_constants_pass(gm: GraphModule, gen_tag_fn: TagFunction | None = None) -> PassResult:
    """Set `meta["constant_tag"]` of the weights; what export has lifted out of the code stays in the program."""
    tagged = [
        node
        for node in _placeholders(gm)
        if "_lifted_tensor" not in node.name and getattr(node.meta.get("spec"), "const", False)
    ]
    for node in tagged:
        node.meta["constant_tag"] = _DEFAULT_TAG if gen_tag_fn is None else gen_tag_fn(node)
    return PassResult(gm, bool(tagged))


def external_mutable_weights_pass(gm: GraphModule, ep: ExportedProgram) -> PassResult:
    """Set `meta["constant_tag"]` of the weights that get a gradient."""
    signature = ep.graph_signature
    targets = {s.target for s in signature.output_specs if s.kind is OutputKind.GRADIENT_TO_PARAMETER}
    tagged = [node for node in _placeholders(gm) if signature.inputs_to_parameters.get(node.name) in targets]
    for node in tagged:
        node.meta["constant_tag"] = _DEFAULT_TAG
    return PassResult(gm, bool(tagged))


def delegate_external_constants_pass(
    gm: GraphModule, ep: ExportedProgram, gen_tag_fn: TagFunction | None = None
) -> PassResult:
    """Set `meta["delegate_constant_tag"]` of parameters, buffers and constants: where a backend is to put them."""
    signature = ep.graph_signature
    held = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }
    tagged = [node for node in _placeholders(gm) if node.name in held and gen_tag_fn is not None]
    for node in tagged:
        assert gen_tag_fn is not None
        node.meta["delegate_constant_tag"] = gen_tag_fn(node)
    return PassResult(gm, bool(tagged))


def delegate_external_constants_pass_unlifted(
    module: torch.nn.Module, gen_tag_fn: TagFunction | None = None
) -> PassResult:
    """The same before export, on what `torch.export(...).module()` gives: `meta["custom"]` outlives export."""
    graphs = [each for each in module.modules() if isinstance(each, GraphModule)]
    tagged = [node for each in graphs for node in each.graph.find_nodes(op="get_attr") if gen_tag_fn is not None]
    for node in tagged:
        assert gen_tag_fn is not None
        node.meta.setdefault("custom", {})["delegate_constant_tag"] = gen_tag_fn(node)
    return PassResult(module, bool(tagged))


def _placeholders(gm: GraphModule) -> list[Node]:
    return [
        node
        for each in gm.modules()
        if isinstance(each, GraphModule)
        for node in each.graph.find_nodes(op="placeholder")
    ]
