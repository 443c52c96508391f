"""The conformance kit on the backend: what is claimed stands in conformance.toml."""

from __future__ import annotations

import pytest

from delegraph_testkit import BackendConformance

pytestmark = pytest.mark.conformance


class TestMnn(BackendConformance):
    name = "mnn"
