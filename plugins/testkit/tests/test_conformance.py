"""The plug-ins of this repository, proven as a stranger's are (`make conformance`): each by the claims beside it."""

from __future__ import annotations

import pytest

from delegraph_testkit import (
    BackendConformance,
    KernelsConformance,
    MemoryPlannerConformance,
    PassConformance,
    QuantizerConformance,
)

pytestmark = pytest.mark.conformance


class TestCpu(BackendConformance):
    name = "cpu"


class TestCpuQuantizer(QuantizerConformance):
    name = "cpu"


class TestNpu(BackendConformance):
    name = "npu"


class TestNpuQuantizer(QuantizerConformance):
    name = "npu"


class TestDsp(BackendConformance):
    name = "dsp"


class TestDspQuantizer(QuantizerConformance):
    name = "dsp"


class TestOpenVino(BackendConformance):
    name = "openvino"


class TestOpenVinoQuantizer(QuantizerConformance):
    name = "openvino"


class TestPortable(KernelsConformance):
    name = "portable"


class TestSpecial(KernelsConformance):
    name = "special"


class TestAten(KernelsConformance):
    name = "aten"


class TestConstantFolding(PassConformance):
    name = "constant_folding"


class TestGreedy(MemoryPlannerConformance):
    name = "greedy"


class TestBestFit(MemoryPlannerConformance):
    name = "best_fit"


class TestSearch(MemoryPlannerConformance):
    name = "search"


class TestNaive(MemoryPlannerConformance):
    name = "naive"
