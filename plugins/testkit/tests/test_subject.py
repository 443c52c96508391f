"""A name -> the plug-ins that are proven, each as a plug-in of its kind."""

from __future__ import annotations

import pytest

from delegraph.errors import PluginNotFound
from delegraph.plugins import PluginRegistry, hookimpl
from delegraph_testkit.claims import Claims
from delegraph_testkit.subject import Kind, Subject, subjects_called


@pytest.mark.parametrize(
    ("name", "kind", "group"),
    [
        ("partitioners:cpu", Kind.BACKEND, "partitioners"),
        ("kernels:portable", Kind.KERNELS, "kernels"),
        ("quantizers:cpu", Kind.QUANTIZER, "quantizers"),
        ("passes:constant_folding", Kind.PASS, "passes"),
        ("memory_planners:greedy", Kind.PLANNER, "memory_planners"),
    ],
)
def test_an_id_is_a_plug_in_of_its_kind(name: str, kind: Kind, group: str) -> None:
    (subject,) = subjects_called(name)
    assert (subject.kind, subject.group) == (kind, group)
    assert Subject.from_mapping(subject.to_mapping()) == subject


def test_a_tool_is_proven_by_its_name() -> None:
    class Watch:
        @hookimpl
        def method_loaded(self) -> None: ...

    registry = PluginRegistry()
    registry.register("plugins", "watch", Watch)
    assert subjects_called("watch", Claims(), registry) == [Subject(Kind.TOOL, "watch")]


def test_nothing_that_could_be_proven() -> None:
    with pytest.raises(PluginNotFound, match="quantizer, pass, memory planner or tool; `delegraph plugins list`"):
        subjects_called("platforms:nothing")
