"""The calls that are measured."""

import pytest
from sample_name import SampleName

from delegraph.interfaces import BackendInterface
from delegraph.plugins import PluginRegistry


class Doubles(BackendInterface):
    def init(self, context, processed, compile_specs):
        return processed

    def execute(self, context, handle, args):
        if handle is None:
            raise ValueError("no handle")


def test_runs_are_measured_whether_they_end_well_or_not() -> None:
    registry, tool, backend = PluginRegistry(), SampleName(), Doubles()
    registry.register("plugins", "sample_name", tool)
    registry.register("backends", "Doubles", backend)
    execute = registry.bound("backends", backend, "execute")
    execute(None, b"", ())
    measured = tool.seconds["Doubles"]
    assert measured > 0
    with pytest.raises(ValueError, match="no handle"):
        execute(None, None, ())
    assert tool.seconds["Doubles"] > measured


def test_methods_are_counted() -> None:
    registry, tool = PluginRegistry(), SampleName()
    registry.register("plugins", "sample_name", tool)
    registry.notify("method_loaded", method=None)
    assert tool.loaded == 1
