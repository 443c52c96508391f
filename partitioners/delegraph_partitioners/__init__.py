"""Partitioning strategies that any backend can use: by capability, by operator, by pattern, everything."""

from delegraph_partitioners.by_operator import AllNodesPartitioner, OperatorsPartitioner
from delegraph_partitioners.capability import CapabilityBasedPartitioner
from delegraph_partitioners.patterns import ANY, Capture, Match, Op, Pattern, PatternPartitioner, find_matches, op

__all__ = [
    "ANY",
    "AllNodesPartitioner",
    "CapabilityBasedPartitioner",
    "Capture",
    "Match",
    "Op",
    "OperatorsPartitioner",
    "Pattern",
    "PatternPartitioner",
    "find_matches",
    "op",
]
