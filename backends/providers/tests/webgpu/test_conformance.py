"""The conformance kit, on WebGPU: what is claimed stands in conformance_webgpu.toml."""

from __future__ import annotations

import pytest

from delegraph_testkit import BackendConformance

pytestmark = pytest.mark.accelerators


class TestWebGpu(BackendConformance):
    name = "webgpu"
