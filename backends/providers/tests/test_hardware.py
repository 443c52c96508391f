"""Linux and macOS tell of a machine, and providers would drive it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from delegraph.interfaces import Availability
from delegraph_providers import engine
from delegraph_providers.hardware import Hardware, hardware_here
from delegraph_providers.providers import MIGRAPHX, PROVIDERS, TENSORRT_RTX, WEBGPU


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A Linux machine with an RTX, an Intel NPU, a server's display and a network card, and a Hexagon processor."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    for place, kind, vendor, device in (
        ("0000:01:00.0", "0x030000", "0x10de", "0x2684"),
        ("0000:00:0b.0", "0x120000", "0x8086", "0x643e"),
        ("0000:02:00.0", "0x030000", "0x1a03", "0x2000"),
        ("0000:03:00.0", "0x020000", "0x8086", "0x1533"),
    ):
        folder = tmp_path / "pci" / place
        folder.mkdir(parents=True)
        for name, text in (("class", kind), ("vendor", vendor), ("device", device)):
            folder.joinpath(name).write_text(f"{text}\n")
    (tmp_path / "pci" / "broken").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "fastrpc-cdsp").touch()
    return tmp_path / "pci", tmp_path / "dev"


def test_linux(machine: tuple[Path, Path]) -> None:
    assert hardware_here(*machine) == [
        Hardware("NPU", "8086", "Intel 8086:643e at 0000:00:0b.0"),
        Hardware("GPU", "10de", "NVIDIA 10de:2684 at 0000:01:00.0"),
        Hardware("NPU", "17cb", "Qualcomm's Hexagon processor"),
    ]


@pytest.mark.parametrize(("processor", "gpus"), [("arm64", ["Apple silicon's GPU"]), ("x86_64", [])])
def test_macos(processor: str, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: processor)
    assert [hardware.name for hardware in hardware_here()] == gpus


def test_who_would_drive_them(machine: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "hardware_here", lambda: hardware_here(*machine))
    monkeypatch.setattr(engine, "availability", lambda row: Availability(False, f"{row.name} is missing", row.install))
    told = {row.name: engine.devices_told(row) for row in PROVIDERS}
    assert {name: [device.kind for device in devices] for name, devices in told.items()} == {
        "qnn": ["NPU"], "webgpu": ["GPU"], "tensorrt_rtx": ["GPU"], "mlx": [], "migraphx": [], "windowsml": ["GPU"],
        "openvino_ep": ["NPU"],
    }  # fmt: skip
    (rtx,) = told["tensorrt_rtx"]
    assert (rtx.reason, rtx.fix) == ("tensorrt_rtx is missing", f"pip install '{TENSORRT_RTX.distribution}'")


def test_what_is_built_in_chooses_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "availability", lambda row: Availability(True))
    monkeypatch.setattr(engine, "_is_plugged", lambda row: False)
    (gpu,) = engine.devices_told(WEBGPU)
    assert (gpu.kind, gpu.name, gpu.remark) == ("GPU", "the one that onnxruntime-webgpu chooses", "")
    (other,) = engine.devices_told(MIGRAPHX)
    assert other.remark.startswith("nobody has run migraphx yet")
