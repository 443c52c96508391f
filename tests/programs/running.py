"""A `Program`, an order of backends -> what is wrong about it there, or nothing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from core.tests.aot.propagation import PropagationCheck, assert_values_are_what_operators_give
from tests.kernels.oracle import tolerances
from tests.programs.program import PYTHONS, SIZES, Program
from tests.programs.rounding import RUNS, Disturbed, is_close
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

import delegraph
from delegraph.errors import DelegraphError
from delegraph.plugins import PluginRegistry

__all__ = ["BACKENDS", "Finding", "NotExported", "Subject", "orders_of", "with_options"]

BACKENDS: Final = ("cpu", "openvino", "npu", "dsp")
OPTIONS: Final[dict[str, dict[str, Any]]] = {"npu": {"take_all": True}, "openvino": {"exact_nan": True}}
"""So that the npu takes what would not pay, and OpenVINO does not lose NaN where it computes two layers as one."""


def with_options(order: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The backends as `lower` takes them."""
    return [(name, OPTIONS.get(name, {})) for name in order]


ORDERS: Final = (*((name,) for name in BACKENDS), *((a, b) for a in BACKENDS for b in BACKENDS if a != b))
"""Each backend, and both orders of each two."""


def orders_of(program: Program, seed: int, count: int) -> list[tuple[str, ...]]:
    """Kernels alone, and `count` of ORDERS that may take some of it, of which programs in a row have others."""
    orders = [order for order in ORDERS if program.quantized or order != _OF_CODES]
    return [(), *(orders[(seed * count + i) % len(orders)] for i in range(count))]


_OF_CODES: Final = ("npu",)
"""It computes what is quantized, and leaves the rest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong where: `kind` is the same for programs that show the same."""

    order: tuple[str, ...]
    stage: str
    message: str

    @property
    def kind(self) -> str:
        text = re.sub(r"\b[vxs]\d+\b|_\d+\b|\d+(\.\d+)?(e[+-]?\d+)?", "#", self.message.partition("\n")[0])
        return f"{'+'.join(self.order) or 'kernels'}: {self.stage}: {text[:160]}"


class NotExported(Exception):
    """torch.export refuses the program, or makes another of it: nothing is lowered."""


class _Layouts(Interpreter):
    """Runs a program, and fails where `as_strided` shows memory that torch.export laid out otherwise than eager torch:
    batch_norm of a transposed value gives a contiguous one, and its fake result is none."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if any(user.target is torch.ops.aten.as_strided.default for user in n.users):
            # By their hints: to compare them would fix the program's sizes to the example's.
            told = [step.node.hint if isinstance(step, torch.SymInt) else step for step in n.meta["val"].stride()]
            assert list(result.stride()) == told
        return result


class Subject:
    """A program, exported once, with what eager torch gives of it in two calls in a row. Raises `NotExported`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.calls = [program.arguments(size) for size in SIZES]
        try:
            with _quiet():
                shapes = program.dynamic_shapes()
                self.aten = torch.export.export(program.module(), self._inputs(0), dynamic_shapes=shapes)
                if self.aten.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default):
                    _Layouts(self.aten.module(check_guards=False)).run(*self._inputs(0))
        except Exception as error:
            raise NotExported from error

    @cached_property
    def exported(self) -> ExportedProgram:
        """What is lowered: the program of the module, quantized where it wants it."""
        if not self.program.quantized:
            return self.aten
        data = [self._inputs(call) for call in range(len(SIZES))]
        with _quiet():
            program = delegraph.quantize(self.aten, data, recipe="int8", backends=list(BACKENDS)).program
        assert_values_are_what_operators_give(program)
        return program

    @cached_property
    def expected(self) -> list[list[Tensor]]:
        """What each call gives in eager mode."""
        with _quiet(), torch.no_grad():
            model = self.exported.module() if self.program.quantized else self.program.module(PYTHONS)
            return [[result.clone() for result in model(*self._inputs(call))] for call in range(len(SIZES))]

    @cached_property
    def disturbed(self) -> list[list[list[Tensor]]]:
        """What each call gives in each of `RUNS` runs whose roundings are others."""
        runs = []
        for seed in range(RUNS):
            with _quiet(), torch.no_grad():
                run = Disturbed(self.exported.module(check_guards=False), seed)
                runs.append([[r.clone() for r in run.run(*self._inputs(call))] for call in range(len(SIZES))])
        return runs

    def lowered(self, order: Sequence[str], plugins: PluginRegistry | None = None) -> delegraph.Lowered:
        """The program on these backends, looked at behind each stage. Raises as `lower`, and `AssertionError`."""
        with _quiet():
            backends, check = with_options(order), PropagationCheck()
            return delegraph.lower(self.exported, backends=backends, plugins=plugins, progress=check)

    def difference(self, lowered: delegraph.Lowered) -> str | None:
        """In what the results of the calls differ from eager mode's, in words. Raises what a run raises."""
        with _quiet():
            run = delegraph.load(bytes(lowered))
            results = [list(run(*self._inputs(call))) for call in range(len(SIZES))]
        told = (self._difference(call, results[call]) for call in range(len(SIZES)))
        return next(filter(None, told), None)

    def finding(self, order: tuple[str, ...]) -> Finding | None:
        """Quantize, lower onto these backends, run and compare."""
        stage = "quantize"
        try:
            assert self.exported
            stage = "lower"
            lowered = self.lowered(order)
            stage = "run"
            message = self.difference(lowered)
        except Exception as error:
            return Finding(order, stage, _told(error))
        if lowered.report.refusals:
            return Finding(order, "refused", str(lowered.report.refusals[0]))
        return Finding(order, "compare", message) if message else None

    def _difference(self, call: int, results: Sequence[Any]) -> str | None:
        if len(results) != len(self.expected[call]):
            return f"{len(results)} results, not {len(self.expected[call])}"
        for index, (actual, expected) in enumerate(zip(results, self.expected[call], strict=True)):
            if not isinstance(actual, Tensor):
                return f"{type(actual).__name__} in the place of a tensor"
            if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
                return f"{actual.dtype} {tuple(actual.shape)}, not {expected.dtype} {tuple(expected.shape)}"
            if not is_close(actual, expected, [], tolerances).all() and not self._is_rounding(actual, call, index):
                name = self.program.outputs[index]
                return f"wrong values\n{name}, call {call}:\n{actual}\nis not\n{expected}"
        return None

    def _is_rounding(self, actual: Tensor, call: int, index: int) -> bool:
        """Whether a result that is not eager mode's is within what other roundings make of it."""
        others = [run[call][index] for run in self.disturbed]
        return bool(is_close(actual, self.expected[call][index], others, tolerances).all())

    def _inputs(self, call: int) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in self.calls[call])


def _told(error: BaseException) -> str:
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, DelegraphError) else f"{kind} (not delegraph's): {error}"


class _quiet(warnings.catch_warnings):
    """torch's and backends' warnings say nothing here."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.simplefilter("ignore")
        return entered
