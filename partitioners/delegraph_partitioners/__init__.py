"""Partitioning strategies that any backend can use: capability, operators, patterns, everything."""

from delegraph_partitioners.by_operator import AllNodesPartitioner, OperatorsPartitioner
from delegraph_partitioners.capability import CapabilityBasedPartitioner

__all__ = ["AllNodesPartitioner", "CapabilityBasedPartitioner", "OperatorsPartitioner"]
