"""The conformance kit, on the emulator: what is claimed stands in conformance.toml."""

from __future__ import annotations

import pytest

from delegraph_testkit import BackendConformance, QuantizerConformance

pytestmark = pytest.mark.accelerators


class TestQnn(BackendConformance):
    name = "qnn"


class TestQnnQuantizer(QuantizerConformance):
    name = "qnn"
