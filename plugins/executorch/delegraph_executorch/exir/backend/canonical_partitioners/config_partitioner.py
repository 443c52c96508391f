"""ExecuTorch's `executorch.exir.backend.canonical_partitioners.config_partitioner`: one configuration by operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator

import torch
from torch._export.utils import is_buffer, is_lifted_tensor_constant, is_param
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.infra.partitioner import Partition

from delegraph.aot import DelegationSpec, Partitioner, PartitionResult
from delegraph_executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import (
    generate_grouped_partitions_from_list_of_nodes,
)

__all__ = ["ConfigerationBasedPartitioner", "PartitionerConfig", "format_target_name", "is_constant_data"]


def is_constant_data(ep: ExportedProgram, node: Node) -> bool:
    """Whether `node` is a parameter, buffer or constant of the model."""
    return is_param(ep, node) or is_buffer(ep, node) or is_lifted_tensor_constant(ep, node)


def format_target_name(target_name: str) -> str:
    """An operator's name without its namespace: `aten.linear.default` -> `linear.default`."""
    return target_name.split(".", 1)[1] if target_name.count(".") > 1 else target_name


class PartitionerConfig(ABC):
    """One operator that a backend takes: which nodes of it, what goes with each, and whether to keep it whole.

    `target_name` is a class attribute: the operator's name as `format_target_name` gives it, `linear.default`.
    """

    @property
    @abstractmethod
    def target_name(self) -> str:
        """The operator's name, without its namespace."""

    @abstractmethod
    def check_constraints(self, node: Node, ep: ExportedProgram) -> bool:
        """Whether the backend takes this call."""

    @abstractmethod
    def get_original_aten(self) -> torch._ops.OpOverload | None:
        """The operator to keep whole until the partitioner has seen it; None to let it be decomposed."""

    @abstractmethod
    def get_partition(self, node: Node, ep: ExportedProgram) -> list[Node]:
        """The call and what has to go with it: weights, q/dq calls; empty if it is not to be taken after all."""


class ConfigerationBasedPartitioner(Partitioner):
    """Takes the calls that one of `partitioner_configs` takes, each with what goes with it, in the largest partitions.

    (Spelt as ExecuTorch spells it.) Raises `RuntimeError` for two configurations of one `target_name`.
    """

    def __init__(self, delegation_spec: DelegationSpec, partitioner_configs: Iterable[PartitionerConfig]) -> None:
        super().__init__()
        self.delegation_spec = delegation_spec
        self.target_partitioner_configs: dict[str, PartitionerConfig] = {}
        for config in partitioner_configs:
            known = self.target_partitioner_configs.setdefault(config.target_name, config)
            if known is not config:
                raise RuntimeError(f"{known} and {config} are both for the operator {config.target_name}")

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """What the configurations ask to keep whole, where they would take it."""
        kept = [config.get_original_aten() for config in self.target_partitioner_configs.values()]

        def accepts(node: Node) -> bool:
            config = self._config(node)
            return config is not None and config.get_original_aten() is not None and config.check_constraints(node, ep)

        return [op for op in kept if op is not None], accepts

    def get_matched_nodes_from_configs(self, ep: ExportedProgram) -> list[list[Node]]:
        """The nodes that are taken, in groups that stay together; groups that share a node are one."""
        group_of: dict[Node, set[Node]] = {}
        for members in self._taken(ep):
            own = {node for node in members if not (is_constant_data(ep, node) and node in group_of)}
            joined = own.union(*(group_of[node] for node in own if node in group_of))
            group_of.update(dict.fromkeys(joined, joined))
        groups = {id(group): group for group in group_of.values()}
        return [list(group) for group in groups.values()]

    def _taken(self, ep: ExportedProgram) -> Iterator[list[Node]]:
        for node in ep.graph_module.graph.nodes:
            config = self._config(node)
            if config is not None and config.check_constraints(node, ep):
                yield config.get_partition(node, ep)

    def _config(self, node: Node) -> PartitionerConfig | None:
        if node.op != "call_function":
            return None
        return self.target_partitioner_configs.get(format_target_name(getattr(node.target, "__name__", "")))

    def generate_partitions(self, ep: ExportedProgram) -> list[Partition]:
        """The largest partitions of what is taken."""
        return generate_grouped_partitions_from_list_of_nodes(ep.graph_module, self.get_matched_nodes_from_configs(ep))

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag them `tag0`, `tag1` …"""
        tags = {}
        for partition in self.generate_partitions(exported_program):
            tag = f"tag{partition.id}"
            tags[tag] = self.delegation_spec
            for node in partition.nodes:
                if "delegation_tag" in node.meta:
                    raise RuntimeError(f"{node} is in two partitions, {node.meta['delegation_tag']} and {tag}")
                node.meta["delegation_tag"] = tag
        return PartitionResult(exported_program, tags)
