"""`delegraph doctor --devices`: the devices of this machine, who drives each, and what to install."""

from __future__ import annotations

import json

import pytest
from core.tests.plugins.command_line import run
from core.tests.plugins.conftest import BACKEND, Install

from delegraph.cli import main
from delegraph.plugins.devices import DeviceRow, device_rows

DEVICES = (
    BACKEND.replace("import BackendInterface", "import Availability, BackendDevice, BackendInterface")
    + """
    def devices(self):
        return [
            BackendDevice("NPU", "Acme r1", reason="its driver is missing", fix="apt install acme-r1"),
            BackendDevice("NPU", "Acme r2", remark="nobody has run it yet"),
        ]

class Absent(Backend):
    def is_available(self):
        return Availability(False, "no /dev/npu0", "load the driver")

    def devices(self):
        return ()

class Broken(Backend):
    def devices(self):
        raise OSError("the bus is gone")
"""
)


@pytest.fixture
def acme(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"Acme": "acme_rt:Backend", "Gone": "acme_rt:Absent", "Wrong": "acme_rt:Broken"}
    install("acme", {"backends": names}, {"acme_rt.py": DEVICES})
    monkeypatch.setenv("DELEGRAPH_PLUGINS", ",".join(f"backends:{name}" for name in names))


@pytest.mark.usefixtures("acme")
def test_each_device_with_who_drives_it_and_what_to_do() -> None:
    rows = [row for row in device_rows() if row.distribution.startswith("acme")]
    assert rows[:3] == [
        DeviceRow("NPU", "Acme r2", "Acme", "acme 1.0", "ready", "", "nobody has run it yet"),
        DeviceRow("NPU", "Acme r1", "Acme", "acme 1.0", "its driver is missing", "apt install acme-r1"),
        DeviceRow("", "", "Gone", "acme 1.0", "no /dev/npu0; load the driver"),
    ]
    assert "OSError: the bus is gone" in rows[3].state


@pytest.mark.usefixtures("acme")
def test_a_table_of_devices_and_behind_it_the_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--devices") == 0
    out = capsys.readouterr().out
    assert "Acme r2" in out
    assert "its driver is missing" in out
    assert "\nAcme: apt install acme-r1\n" in out
    assert "\nAcme: nobody has run it yet\n" in out
    assert "Gone finds no device here: no /dev/npu0; load the driver\n" in out


@pytest.mark.usefixtures("acme")
def test_all_of_it_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--devices", "--json") == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["distribution"] == "acme 1.0"]
    assert [(row["kind"], row["device"], row["fix"]) for row in rows[:2]] == [
        ("NPU", "Acme r2", ""),
        ("NPU", "Acme r1", "apt install acme-r1"),
    ]
    assert [row["backend"] for row in rows] == ["Acme", "Acme", "Gone", "Wrong"]


def test_without_a_backend(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme", {"memory_planners": {"acme": "acme_rt:plan"}}, {"acme_rt.py": ""})
    monkeypatch.setenv("DELEGRAPH_PLUGINS", "memory_planners:acme")
    code = run("doctor", "--devices")
    assert (code, capsys.readouterr().out) == (0, "no backend is installed\n")


def test_a_program_and_devices_are_two_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "m.pte", "--devices") == 2
    assert "say either a program or --devices" in capsys.readouterr().err


@pytest.mark.usefixtures("acme")
def test_it_stands_among_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--devices", "--json"]) == 0
    assert [row["backend"] for row in json.loads(capsys.readouterr().out)] == ["Acme", "Acme", "Gone", "Wrong"]
