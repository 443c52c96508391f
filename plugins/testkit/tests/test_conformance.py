"""The plug-ins of this repository, proven as a stranger's are (`make conformance`)."""

from __future__ import annotations

import pytest

from delegraph_testkit import BackendConformance, KernelsConformance, QuantizerConformance

pytestmark = pytest.mark.conformance

EVERYDAY = (
    *("abs", "add", "mul", "sub", "exp", "neg", "sigmoid", "sqrt", "tanh", "maximum", "minimum"),
    *("nn.functional.relu", "nn.functional.hardtanh", "nn.functional.leaky_relu", "nn.functional.linear"),
    *("addmm", "bmm", "mm", "softmax", "mean", "amax"),
)
"""Entries of torch's database that whoever runs models has."""

FLOAT32 = {entry: ["float32"] for entry in EVERYDAY}


class TestCpu(BackendConformance):
    name = "cpu"
    claims = {  # noqa: RUF012 - a claim is not changed
        "operators": FLOAT32,
        "features": ["dynamic_shapes", "mutable_buffers", "control_flow", "shared_weights", "external_weights"],
    }


class TestCpuQuantizer(QuantizerConformance):
    name = "cpu"


class TestPortable(KernelsConformance):
    name = "portable"
    claims = {"operators": FLOAT32, "features": ["dynamic_shapes"]}  # noqa: RUF012


class TestAten(KernelsConformance):
    name = "aten"
    claims = {"operators": FLOAT32, "features": ["dynamic_shapes"], "needs_torch": True}  # noqa: RUF012
