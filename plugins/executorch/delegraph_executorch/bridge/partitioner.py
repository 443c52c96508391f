"""A partitioner of ExecuTorch -> one of ours: it sees its own dialect, its tags and reasons come back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import (
    CompileSpec,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    graph_modules,
    is_delegate_call,
)
from delegraph_executorch.bridge.lowerings import offer_lowering
from delegraph_executorch.bridge.programs import Translated, torch_operator, translated
from delegraph_executorch.bridge.reasons import listening

__all__ = ["BridgedPartitioner", "bridged"]

_TAG = "delegation_tag"


def bridged(partitioner: Any) -> Partitioner:
    """What stands for ExecuTorch's `partitioner` in `backends=[…]`."""
    return BridgedPartitioner(partitioner)


class BridgedPartitioner(Partitioner):
    """Runs a partitioner that was written for ExecuTorch."""

    def __init__(self, partitioner: Any) -> None:
        super().__init__()
        self.partitioner = partitioner

    def __repr__(self) -> str:
        return f"BridgedPartitioner({type(self.partitioner).__name__})"

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Translate the program, let the partitioner tag the copy, and take over its tags."""
        theirs = translated(exported_program)
        with listening() as reasons:
            result = self.partitioner(theirs.program)
        reasons = {**reasons, **_declined_for_xnnpack(result)}
        tags = {
            tag: DelegationSpec(spec.backend_id, [CompileSpec(s.key, bytes(s.value)) for s in spec.compile_specs])
            for tag, spec in result.partition_tags.items()
        }
        for spec in result.partition_tags.values():
            offer_lowering(spec.backend_id)
        used = _take_tags(theirs, result.tagged_exported_program, tags)
        said = {theirs.originals[node].name: reason for node, reason in reasons.items() if node in theirs.originals}
        return PartitionResult(
            exported_program,
            {tag: spec for tag, spec in tags.items() if tag in used},
            self._declined(exported_program, said),
        )

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """What the partitioner asks for, without what cannot be kept: operators that change or alias an argument.

        A call that its filter cannot judge is not kept. (XNNPACK's raises IndexError for a `max_pool2d` without stride,
        and with it all of ExecuTorch's lowering.)
        """
        operators, accepts = self.partitioner.ops_to_not_decompose(ep)
        kept = [op for op in dict.fromkeys(map(torch_operator, operators)) if _can_be_kept(op)]
        kinds = {kind.__name__ for kind in type(self.partitioner).__mro__}
        return kept, _tolerant(accepts) if "XnnpackPartitioner" not in kinds else _for_xnnpack(_tolerant(accepts))

    def _declined(self, program: ExportedProgram, said: dict[str, str]) -> dict[str, str]:
        """A reason for every call without a tag, by its name with the path of its body before it."""
        silent = f"executorch's {type(self.partitioner).__name__} did not take it"
        return {
            f"{path}.{node.name}" if path else node.name: said.get(node.name, silent)
            for path, module in graph_modules(program.graph_module)
            for node in _calls(module.graph.nodes)
            if _TAG not in node.meta
        }


def _declined_for_xnnpack(result: Any) -> dict[Node, str]:
    """Take XNNPACK's tag from calls that read integers, that read a stored weight in a form that it does not know,
    and that restore such a weight: all of them, with a reason each.

    XNNPACK takes the bytes of integers for floats. Unless the weight is dequantized as it stands in the file, and
    values are quantized too, XNNPACK fails to compile, or multiplies by the codes and says nothing.
    """
    tags = {tag for tag, spec in result.partition_tags.items() if spec.backend_id == "XnnpackBackend"}
    program = result.tagged_exported_program
    inputs = set(program.graph_signature.user_inputs)
    restored: dict[Node, list[Node]] = {}  # what is computed of constants -> the calls that do it
    declined: dict[Node, str] = {}
    for node in program.graph.nodes:
        if node.meta.get(_TAG) in tags and not _rounds(node) and any(map(_is_integers, node.all_input_nodes)):
            declined[node] = _INTEGERS
        weights = [source for source in node.all_input_nodes if any(map(_dequantizes, restored.get(source, ())))]
        if node.op == "placeholder" and node.name not in inputs:
            restored[node] = []
        elif node.op == "call_function" and all(source in restored for source in node.all_input_nodes):
            restored[node] = [node, *(call for source in node.all_input_nodes for call in restored[source])]
        elif weights and node.meta.get(_TAG) in tags:
            values = [source for source in node.all_input_nodes if source not in restored]
            if not all(map(_as_it_stands, weights)) or not any(map(_dequantizes, values)):
                restoring = [call for weight in weights for call in restored[weight]]
                declined |= dict.fromkeys([node, *restoring, *_rounding(values)], _UNKNOWN)
    _take_out(declined, result)
    return declined


def _take_out(nodes: Collection[Node], result: Any) -> None:
    """Let `nodes` be in no partition. What stood behind one of them in its partition is one of its own from now on."""
    depths: dict[Node, int] = {}  # how many of the nodes lie on the longest way to a call
    split = {node.meta.pop(_TAG) for node in nodes if _TAG in node.meta}
    for node in result.tagged_exported_program.graph.nodes:
        depths[node] = max((depths[source] for source in node.all_input_nodes), default=0) + (node in nodes)
        if depths[node] and node.meta.get(_TAG) in split:
            tag = node.meta[_TAG]
            node.meta[_TAG] = f"{tag}_{depths[node]}"
            result.partition_tags[node.meta[_TAG]] = result.partition_tags[tag]


_UNKNOWN = "XNNPACK computes with stored weights where values are quantized too, and codes stand in bytes of their own"
_INTEGERS = "XNNPACK takes integers for floats"
_TURNS = ("permute_copy", "t_copy", "transpose_copy")


def _dequantizes(node: Node) -> bool:
    return ".dequantize_" in str(node.target)


def _rounds(node: Node) -> bool:
    return any(step in str(node.target) for step in ("quantize_", "choose_qparams"))


def _is_integers(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.dtype.is_floating_point and value.dtype is not torch.bool


def _rounding(values: Iterable[Node]) -> Iterator[Node]:
    """The calls that quantize and dequantize these values, which XNNPACK knows before a product alone."""
    for value in values:
        if value.target is operator.getitem or _rounds(value):
            yield value
            yield from _rounding(value.all_input_nodes)


def _as_it_stands(weight: Node) -> bool:
    """Whether `weight` is a constant, dequantized and perhaps turned. XNNPACK reads zero points of channels."""
    while any(f".{turn}." in str(weight.target) for turn in _TURNS):
        (weight,) = weight.all_input_nodes
    lacks_zeros = ".dequantize_per_channel." in str(weight.target) and weight.args[2] is None
    codes = weight.args[0] if _dequantizes(weight) and not lacks_zeros else None
    return isinstance(codes, Node) and codes.op == "placeholder"


def _take_tags(theirs: Translated, tagged: ExportedProgram, tags: Iterable[str]) -> set[str]:
    """Give the original nodes the tags of their copies, as far as `partition_tags` lists them, and whatever else the
    partitioner noted on them for its `preprocess`; the tags that came up.

    A partitioner may give back another program than it was given; its nodes are then known by their names.
    """
    by_name = {new.name: old for new, old in theirs.originals.items()}
    known, used = set(tags), set()
    for _, module in graph_modules(tagged.graph_module):
        for node in module.graph.nodes:
            original = theirs.originals.get(node) or by_name.get(node.name)
            if original is None or original.op == "output":
                continue
            tag = node.meta.get(_TAG)
            original.meta.update(
                {key: note for key, note in node.meta.items() if key not in original.meta | {_TAG: ""}}
            )
            if tag in known:
                original.meta[_TAG] = tag
                used.add(tag)
    return used


def _calls(nodes: Iterable[Node]) -> Iterable[Node]:
    calls = (node for node in nodes if node.op == "call_function" and node.target is not operator.getitem)
    return (node for node in calls if not is_delegate_call(node))


def _tolerant(accepts: Callable[[Node], bool] | None) -> Callable[[Node], bool] | None:
    def accepts_or_cannot_tell(node: Node) -> bool:
        assert accepts is not None
        try:
            return accepts(node)
        except Exception:
            return False

    return None if accepts is None else accepts_or_cannot_tell


def _for_xnnpack(accepts: Callable[[Node], bool] | None) -> Callable[[Node], bool]:
    """`accepts`, but for a weight of torchao's that meets no quantized values: kernels have a form of it."""

    def accepts_and_knows(node: Node) -> bool:
        is_weight = _dequantizes(node) and all(source.op != "call_function" for source in node.all_input_nodes)
        met = (value for reader in node.users for value in reader.all_input_nodes if value is not node)
        return (accepts is None or accepts(node)) and (not is_weight or any(map(_dequantizes, met)))

    return accepts_and_knows


def _can_be_kept(op: OpOverload) -> bool:
    """As in ExecuTorch (`exir/program/_program.py`), which ignores a request for the others."""
    if op in (getattr(torch.ops.torchao, name, None) for name in ("choose_qparams_affine",)):
        return True
    schema = op._schema
    return not schema.is_mutable and all(result.alias_info is None for result in schema.returns)
