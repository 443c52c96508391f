"""The conformance kit: a test for each of its checks. What is claimed stands in conformance.toml."""

from delegraph_testkit import MemoryPlannerConformance


class TestSampleName(MemoryPlannerConformance):
    name = "sample_name"
