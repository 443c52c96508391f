"""Random programs on backends that refuse a part of what they took, by chance, when they compile it.

The partitioners cut around that, and who computes what does not change the answer. `tests/programs` has the same with
the backends as they are, which refuse nothing that they took.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import pytest
from tests.programs.grammar import random_program
from tests.programs.running import Subject
from torch.export import ExportedProgram

from delegraph.aot import graph_modules
from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph.plugins import PluginRegistry

pytestmark = pytest.mark.models

IDS = {"cpu": "CpuBackend", "openvino": "OpenVinoIR", "npu": "NpuBackend", "dsp": "DspBackend"}
QUANTIZED = (1, 14, 28)
"""npu and dsp compute what is quantized."""

CASES = [(["cpu", "openvino"], range(5, 9)), (["openvino", "cpu"], range(5, 9))]
CASES += [(["npu", "dsp"], QUANTIZED), (["dsp", "npu"], QUANTIZED)]


def refusing(base: type[BackendDetails], seed: int) -> type[BackendDetails]:
    """`base`, refusing a third of the calls, by their names, of which it names every other one in its error."""

    class Refusing(base):  # type: ignore[misc,valid-type]
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
            _refuse(edge_program, seed)
            return base.preprocess(edge_program, compile_specs)

        @classmethod
        def preprocess_multimethod(
            cls,
            edge_programs: dict[str, list[ExportedProgram]],
            compile_specs: dict[str, list[list[CompileSpec]]],
        ) -> dict[str, list[PreprocessResult]]:
            for programs in edge_programs.values():
                for program in programs:
                    _refuse(program, seed)
            return base.preprocess_multimethod(edge_programs, compile_specs)

    return Refusing


def _refuse(program: ExportedProgram, seed: int) -> None:
    for _, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            chance = crc32(f"{seed} {node.name}".encode()) % 12
            if node.op == "call_function" and chance < 4:
                raise UnsupportedOperator("by chance", node=node.name if chance else None)


def registry_of(seed: int) -> PluginRegistry:
    plugins = PluginRegistry.discover()
    for backend_id in IDS.values():
        base = plugins.load("lowerings", backend_id)
        plugins.register("lowerings", backend_id, refusing(base, seed))
    return plugins


@pytest.mark.filterwarnings("ignore:.* refuses to compile a whole partition:delegraph.plugins.PluginWarning")
@pytest.mark.parametrize(
    ("order", "seeds"), CASES, ids=lambda value: "+".join(value) if isinstance(value, list) else ""
)
def test_whatever_is_refused_somebody_else_computes_it(order: list[str], seeds: Sequence[int]) -> None:
    refused = 0
    for seed in seeds:
        subject = Subject(random_program(seed))
        lowered = subject.lowered(order, registry_of(seed))
        refused += len(lowered.report.refusals)
        assert subject.difference(lowered) is None
    assert refused
