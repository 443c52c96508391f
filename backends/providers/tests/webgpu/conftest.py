"""A device for WebGPU where there is no GPU: SwiftShader, which Debian's `chromium` brings (`apt-get install chromium
libvulkan1`). Another Vulkan is chosen as everywhere, by VK_ICD_FILENAMES."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")


def use_swiftshader() -> None:
    """Have WebGPU find the software Vulkan of this machine, unless its user chose one."""
    if SWIFTSHADER.is_file():
        os.environ.setdefault("VK_ICD_FILENAMES", str(SWIFTSHADER))
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without one Dawn complains


@pytest.fixture(scope="session", autouse=True)
def device() -> None:
    """Skip where no device is found, for the reason that users are told."""
    use_swiftshader()
    from delegraph_providers.engine import availability
    from delegraph_providers.providers import WEBGPU

    there = availability(WEBGPU)
    if not there:
        pytest.skip(f"no device for WebGPU: {there.reason} (SwiftShader: apt-get install chromium libvulkan1)")
