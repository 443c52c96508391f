"""A planned graph -> nothing, or an error for the first tensors whose places are not sound."""

from __future__ import annotations

from collections.abc import Sequence

from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from delegraph.errors import LoweringError
from delegraph_executorch.exir._planning_specs import (
    alive_together,
    collect_specs_from_nodes,
    get_graph_input_tensors,
    get_graph_output_tensors,
    have_overlap,
    mutable_buffer_specs,
)
from delegraph_executorch.exir.schema import TensorShapeDynamism
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = ["Verifier"]


class Verifier:
    """Whether a planned graph is sound."""

    def __init__(
        self,
        graph_module: GraphModule,
        alloc_graph_input: bool,
        alloc_graph_output: bool,
        alloc_mutable_buffers: bool,
        graph_signature: ExportGraphSignature | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.graph_signature = graph_signature
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers

    @classmethod
    def mem_obj_id_match(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec, accept_both_none: bool = True) -> bool:
        """Whether two tensors are in one shared object; `accept_both_none` is the answer where neither is in one."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        if lhs_spec.mem_obj_id is None and rhs_spec.mem_obj_id is None:
            return accept_both_none
        return lhs_spec.mem_obj_id == rhs_spec.mem_obj_id

    @classmethod
    def has_overlap(cls, lhs_ivl: Sequence[int], rhs_ivl: Sequence[int]) -> bool:
        """Whether two intervals, both ends included, have something in common."""
        return have_overlap(lhs_ivl, rhs_ivl)

    @classmethod
    def lifetime_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Whether two tensors are alive at one time."""
        return alive_together(lhs_spec, rhs_spec)

    @classmethod
    def storage_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Whether two tensors share bytes. Raises `LoweringError` for one that has no place."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        spans = []
        for spec in (lhs_spec, rhs_spec):
            if spec.mem_offset is None or spec.mem_offset < 0:
                raise LoweringError(f"{spec} has no place in memory (mem_offset is {spec.mem_offset})")
            spans.append((spec.mem_offset, spec.mem_offset + spec.allocated_memory - 1))
        return cls.has_overlap(*spans)

    def verify_storage_reuse(self, allow_lifetime_and_storage_overlap: bool = False) -> int:
        """How many pairs of tensors share bytes. Raises `LoweringError` if two of them are alive at one time."""
        specs = list(
            collect_specs_from_nodes(
                self.graph_module.graph.nodes,
                self.graph_signature,
                ignore_graph_input=not self.alloc_graph_input,
                ignore_graph_output=not self.alloc_graph_output,
                ignore_mutable_buffers=not self.alloc_mutable_buffers,
                do_assertion=False,
                ignore_out_var_node=False,
            )
        )
        return sum(
            self._shares(one, other, allow_lifetime_and_storage_overlap)
            for index, one in enumerate(specs)
            for other in specs[index + 1 :]
        )

    def _shares(self, one: TensorSpec, other: TensorSpec, allow_lifetime_and_storage_overlap: bool) -> bool:
        if (one.mem_obj_id is None) != (other.mem_obj_id is None):
            raise LoweringError("mem_obj_id is set on some specs and not on others")
        if not self.storage_overlap(one, other):
            return False
        in_place = one.inplace_base is other or other.inplace_base is one
        if not allow_lifetime_and_storage_overlap and not in_place and self.lifetime_overlap(one, other):
            raise LoweringError(f"two tensors share bytes while both are alive:\n  {one.debug()}\n  {other.debug()}")
        if not self.mem_obj_id_match(one, other):
            raise LoweringError(f"two tensors share bytes, but not a mem_obj_id:\n  {one.debug()}\n  {other.debug()}")
        return True

    def verify_graph_input_output(self) -> None:
        """Raise AssertionError unless inputs and outputs have memory exactly where they are to have it."""
        nodes = list(self.graph_module.graph.nodes)
        inputs = get_graph_input_tensors(nodes, self.graph_signature)
        outputs = get_graph_output_tensors(nodes)
        if inputs & outputs and self.alloc_graph_input != self.alloc_graph_output:
            return
        states = mutable_buffer_specs(nodes, self.graph_signature)
        asked_of = (("input", self.alloc_graph_input, inputs), ("output", self.alloc_graph_output, outputs))
        for what, asked, found in asked_of:
            specs = [spec for spec in found if not spec.const and spec not in states]
            if any(spec.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND for spec in specs):
                continue
            wrong = [spec for spec in specs if (spec.mem_offset is not None) != asked]
            assert not wrong, (
                f"the graph's {what}s are {'' if asked else 'not '}to have planned memory, but {wrong[0].debug()}"
            )
