"""The half of the kit's own backend that compiles; see `whole_keeper`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import BackendDetails, CompileSpec, PreprocessResult
from delegraph.aot.authoring import ConverterTable, GraphConverter
from delegraph_partitioners import CapabilityBasedPartitioner
from delegraph_testkit.arrays import Array
from delegraph_testkit.whole_keeper import WHOLE_KEEPER

__all__ = ["TestkitWholeKeeper", "whole_keeper"]

_TABLE = ConverterTable(WHOLE_KEEPER, dtypes={torch.float32})
aten = torch.ops.aten


class _Compiler(GraphConverter[int]):
    table = _TABLE

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.inputs: list[int] = []
        self.weights: dict[int, Array] = {}
        self.steps: list[tuple[str, list[Any], list[int | None], int]] = []

    def input(self, node: Node) -> int:
        self.inputs.append(self._new())
        return self.inputs[-1]

    def constant(self, node: Node, array: Array) -> int:
        register = self._new()
        self.weights[register] = np.ascontiguousarray(array, "<f4")
        return register

    def emit(self, operation: str, operands: list[Node | None], *numbers: Any) -> int:
        reads = [None if operand is None else self.value(operand) for operand in operands]
        self.steps.append((operation, list(numbers), reads, self._new()))
        return self.steps[-1][3]

    def _new(self) -> int:
        self.count += 1
        return self.count - 1


@_TABLE.converts(aten.linear.default, keep_whole=True)
def _linear(compiler: _Compiler, node: Node, x: Node, weight: Node, bias: Node | None) -> int:
    return compiler.emit("linear", [x, weight, bias])


@_TABLE.converts(aten.conv2d.default, keep_whole=True)
def _conv2d(
    compiler: _Compiler,
    node: Node,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> int:
    pairs = [[*values] * (2 // len(values)) for values in (stride, padding, dilation)]
    return compiler.emit("conv2d", [x, weight, bias], *pairs, groups)


def whole_keeper() -> CapabilityBasedPartitioner:
    """Its partitioner."""
    return CapabilityBasedPartitioner(WHOLE_KEEPER, _TABLE.support, keep_whole=_TABLE.kept_whole)


class TestkitWholeKeeper(BackendDetails):
    """Found by its name, which is the backend id."""

    __test__ = False  # pytest takes a class of such a name for tests

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        compiler = _Compiler()
        outputs = compiler.convert_program(edge_program)
        shapes = [[register, list(array.shape)] for register, array in compiler.weights.items()]
        head = json.dumps([compiler.inputs, shapes, compiler.steps, outputs]).encode()
        return PreprocessResult(head + b"\n" + b"".join(array.tobytes() for array in compiler.weights.values()))
