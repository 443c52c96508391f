"""A partitioner of ExecuTorch -> one of ours: it sees its own dialect, its tags and reasons come back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
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
from delegraph_executorch.bridge.xnnpack_weights import TAG, declined_by_xnnpack, kept_for_xnnpack

__all__ = ["BridgedPartitioner", "bridged"]


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
        reasons = {**reasons, **declined_by_xnnpack(result)}
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
        return kept, _tolerant(accepts) if "XnnpackPartitioner" not in kinds else kept_for_xnnpack(_tolerant(accepts))

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program as the partitioner changes it; those of ExecuTorch 1.4 change nothing."""
        transform = getattr(self.partitioner, "transform_for_pre_decomposition", None)
        return exported_program if transform is None else transform(exported_program)

    def _declined(self, program: ExportedProgram, said: dict[str, str]) -> dict[str, str]:
        """A reason for every call without a tag, by its name with the path of its body before it."""
        silent = f"executorch's {type(self.partitioner).__name__} did not take it"
        return {
            f"{path}.{node.name}" if path else node.name: said.get(node.name, silent)
            for path, module in graph_modules(program.graph_module)
            for node in _calls(module.graph.nodes)
            if TAG not in node.meta
        }


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
            tag = node.meta.get(TAG)
            original.meta.update({key: note for key, note in node.meta.items() if key not in original.meta | {TAG: ""}})
            if tag in known:
                original.meta[TAG] = tag
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


def _can_be_kept(op: OpOverload) -> bool:
    """As in ExecuTorch (`exir/program/_program.py`), which ignores a request for the others."""
    if op in (getattr(torch.ops.torchao, name, None) for name in ("choose_qparams_affine",)):
        return True
    schema = op._schema
    return not schema.is_mutable and all(result.alias_info is None for result in schema.returns)
