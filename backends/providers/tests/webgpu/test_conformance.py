"""The conformance kit, on WebGPU: what is claimed stands in conformance_webgpu.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

import delegraph_providers
from delegraph_testkit import BackendConformance

pytestmark = pytest.mark.accelerators


class TestWebGpu(BackendConformance):
    name = "webgpu"
    claims = str(Path(delegraph_providers.__file__).with_name("conformance_webgpu.toml"))
