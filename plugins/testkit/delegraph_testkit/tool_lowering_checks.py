"""Tools where programs are lowered: files and errors are those that they are without the tool."""

from __future__ import annotations

from torch.export import ExportedProgram

from delegraph.aot import BackendDetails, CompileSpec, PreprocessResult
from delegraph_partitioners import CapabilityBasedPartitioner
from delegraph_testkit.bench import Bench, Stored
from delegraph_testkit.lowering import lowered_onto
from delegraph_testkit.models import example
from delegraph_testkit.tool_registries import Refused, assert_same_error, assert_without_a_warning, no_tool, the_tool
from delegraph_testkit.whole_keeper_aot import whole_keeper

__all__ = [
    "errors_of_lowering_are_passed_on",
    "lowering_is_watched_without_a_warning",
    "programs_are_the_same",
]


def programs_are_the_same(bench: Bench, stored: Stored) -> None:
    """A model lowered with the tool is the file that it is without it, to the byte."""
    files = []
    for tools in (no_tool(), the_tool(bench)):
        with tools:
            files.append(bytes(lowered_onto(example(stored.name), [whole_keeper()])))
    assert files[0] == files[1], f"{stored.name} is another file where the tool is on"


def errors_of_lowering_are_passed_on(bench: Bench, stored: Stored) -> None:
    """Where a backend raises as it compiles, its error comes through."""
    partitioner = CapabilityBasedPartitioner(TestkitRefuser.__name__, lambda node: None)

    def attempt() -> None:
        lowered_onto(example(stored.name), [partitioner])

    assert_same_error(bench, f"{stored.name}: a backend whose preprocess() raises", attempt)


class TestkitRefuser(BackendDetails):
    """Compiles nothing. Found by its name, which is the backend id."""

    __test__ = False  # pytest takes a class of such a name for tests

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        raise Refused("preprocess is refused")


def lowering_is_watched_without_a_warning(bench: Bench, stored: Stored) -> None:
    """A model is lowered with the tool, and it raises at no event."""
    assert_without_a_warning(bench, lambda: lowered_onto(example(stored.name), [whole_keeper()]))
