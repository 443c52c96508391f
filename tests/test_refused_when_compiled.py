"""Random graphs on every backend and on orders of two: lowering raises nothing where kernels alone raise nothing.

Once as the backends are, and once with backends that refuse a part of what they took, by chance, when they compile it:
the partitioners cut around that, and who computes what does not change the answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import delegraph
from delegraph.aot import graph_modules
from delegraph.errors import UnsupportedOperator
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph.plugins import PluginRegistry

BACKENDS: Final = {"cpu": "CpuBackend", "openvino": "OpenVinoIR", "npu": "NpuBackend", "dsp": "DspBackend"}
OPTIONS: Final = {"npu": {"take_all": True}}
"""So that the npu takes what would not pay."""

ALONE: Final = [[name] for name in BACKENDS]
PAIRS: Final = [[first, second] for first in BACKENDS for second in BACKENDS if first != second]
CASES: Final = {
    "float": (1, False, [["cpu"], ["openvino"], ["cpu", "openvino"], ["openvino", "cpu"]]),
    "int8": (2, True, [*ALONE, *PAIRS[::3]]),
    "int8 in pairs": (3, True, [*PAIRS[1::3], *PAIRS[2::3]]),
}
"""A seed, whether the graph is quantized, and orders of backends: npu and dsp compute what is quantized."""

ROWS, COLUMNS = 6, 8

OPERATORS: Final[Sequence[Callable[..., Tensor]]] = (
    torch.relu,
    torch.tanh,
    torch.sigmoid,
    torch.neg,
    torch.abs,
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    lambda a: a.softmax(-1),
    lambda a: a.sort(-1).values,
    lambda a: a.flip(0).roll(1, 1),
    lambda a: a.mean(-1, keepdim=True).expand(ROWS, COLUMNS),
    lambda a: a.reshape(COLUMNS, ROWS).t().contiguous(),
    lambda a, b: torch.where(a > b, a, b * 2),
    lambda a, b: a @ b.t() @ b * 0.1,
    lambda a, b: torch.cat([a, b])[ROWS // 2 : ROWS // 2 + ROWS],
    lambda a: nn.functional.layer_norm(a, (COLUMNS,)),
    lambda a: a.cumsum(0) * 0.2,
    lambda a, b: a.masked_fill(b > 0.5, 0.25),
)
"""Functions of one or two float tensors (ROWS, COLUMNS) that give such a tensor."""

LAYERS: Final = 4
"""Every so many calls, a linear layer: what quantizers are for."""


class Graph(nn.Module):
    """Calls of OPERATORS and of linear layers, each on values made before, by chance; the last three are given."""

    def __init__(self, seed: int, calls: int = 12) -> None:
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(COLUMNS, COLUMNS) for _ in range(calls // LAYERS))
        self.steps: list[tuple[int | None, list[int]]] = []
        for number in range(calls):
            operator = draw.randrange(len(OPERATORS)) if number % LAYERS else None
            count = 1 if operator is None else _arity(OPERATORS[operator])
            # late values more often, so that graphs are deep and wide
            self.steps.append((operator, [max(draw.randrange(number + 1) for _ in range(2)) for _ in range(count)]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values, layers = [x], iter(self.layers)
        for operator, operands in self.steps:
            call = next(layers) if operator is None else OPERATORS[operator]
            values.append(call(*(values[operand] for operand in operands)))
        return tuple(values[-3:])


def _arity(function: Callable[..., Tensor]) -> int:
    code = getattr(function, "__code__", None)
    if code is not None:
        return int(code.co_argcount)
    return 2 if function in (torch.add, torch.sub, torch.mul, torch.maximum) else 1


X = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))


def program_of(seed: int, quantized: bool) -> Any:
    """What `lower` takes: the model with its arguments, or quantized."""
    model = Graph(seed).eval()
    if not quantized:
        return {"model": model, "args": (X,)}
    return {"model": delegraph.quantize(model, [(X,)], recipe="int8", backends=list(BACKENDS))}


def lowered_onto(order: Sequence[str], program: Any, plugins: PluginRegistry | None = None) -> delegraph.Lowered:
    backends = [(name, OPTIONS.get(name, {})) for name in order]
    return delegraph.lower(**program, backends=backends, plugins=plugins)


def answers(lowered: delegraph.Lowered) -> list[Any]:
    return [np.array(result) for result in delegraph.load(bytes(lowered))(X.numpy())]


def assert_close(results: Sequence[Any], expected: Sequence[Any], quantized: bool) -> None:
    for result, right in zip(results, expected, strict=True):
        step = float(np.ptp(right)) / 255
        np.testing.assert_allclose(result, right, rtol=0, atol=8 * step if quantized else 2e-3 * (1 + abs(right).max()))


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
    for backend_id in BACKENDS.values():
        base = plugins.load("lowerings", backend_id)
        plugins.register("lowerings", backend_id, refusing(base, seed))
    return plugins


@pytest.mark.parametrize(("seed", "quantized", "orders"), CASES.values(), ids=CASES)
def test_backends_refuse_nothing_that_they_took(seed: int, quantized: bool, orders: Sequence[list[str]]) -> None:
    program = program_of(seed, quantized)
    expected = answers(delegraph.lower(**program))
    for order in orders:
        lowered = lowered_onto(order, program)
        assert lowered.report.refusals == (), order
        assert {entry.backend for entry in lowered.report.methods["forward"].delegates} >= {BACKENDS[order[0]]}
        assert_close(answers(lowered), expected, quantized)


@pytest.mark.filterwarnings("ignore:.* refuses to compile a whole partition:delegraph.plugins.PluginWarning")
@pytest.mark.parametrize(("seed", "quantized", "orders"), CASES.values(), ids=CASES)
def test_whatever_is_refused_somebody_else_computes_it(seed: int, quantized: bool, orders: Sequence[list[str]]) -> None:
    program, plugins = program_of(seed, quantized), registry_of(seed)
    expected = answers(delegraph.lower(**program))
    refused: Counter[str] = Counter()
    for order in orders:
        lowered = lowered_onto(order, program, plugins)
        refused[order[0]] += len(lowered.report.refusals)
        assert_close(answers(lowered), expected, quantized)
    assert set(+refused) == {order[0] for order in orders}
