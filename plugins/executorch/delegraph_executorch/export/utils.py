"""ExecuTorch's `executorch.export.utils`: where compilers of backends run."""

from __future__ import annotations

import platform

import torch

__all__ = ["is_fbcode", "is_supported_platform_for_coreml_lowering", "is_supported_platform_for_qnn_lowering"]


def is_fbcode() -> bool:
    """Whether torch was built inside of Meta."""
    return not hasattr(torch.version, "git_version")


def is_supported_platform_for_coreml_lowering() -> bool:
    """Whether coremltools compiles on this machine: Linux on x86-64, macOS on ARM."""
    machine = platform.machine().lower()
    return (platform.system(), machine) in (("Linux", "x86_64"), ("Darwin", "arm64"), ("Darwin", "aarch64"))


def is_supported_platform_for_qnn_lowering() -> bool:
    """Whether Qualcomm's SDK compiles on this machine: Linux on x86."""
    return platform.system() == "Linux" and platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
