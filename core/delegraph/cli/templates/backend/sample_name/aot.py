"""The half that compiles: which nodes SampleName takes, and what it makes of them. Imports torch.

A node is taken exactly when its operator has a row in `TABLE` whose dtypes and check admit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import BackendDetails, CompileSpec, PreprocessResult
from delegraph.aot.authoring import ConverterTable, GraphConverter, lower_sharing_weights
from delegraph_partitioners import CapabilityBasedPartitioner
from sample_name.blob import BACKEND_ID, FORMAT, PRECISIONS, Constant, Program, Step

TABLE = ConverterTable(BACKEND_ID, dtypes={torch.float32})
aten = torch.ops.aten


class Compiler(GraphConverter[int]):
    """Walks over a partition; each of its values is the number of a register.

    `keys` are those of the weights that other partitions have too, by the names of their placeholders; `handles` say
    which nodes of the model a step comes from, by the register that it writes.
    """

    table = TABLE

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.keys = keys
        self.program = Program([], [], [], [])
        self.sections: dict[str, bytes] = {}
        self.handles: dict[int, tuple[int, ...]] = {}
        self._new = count().__next__

    def input(self, node: Node) -> int:
        self.program.inputs.append(self._new())
        return self.program.inputs[-1]

    def constant(self, node: Node, array: Any) -> int:
        register = self._new()
        self.program.constants.append(Constant(register, array.shape, self.keys.get(node.name, "")))
        if node.name not in self.keys:
            self.sections[str(register)] = array.tobytes()
        return register

    def emit(self, operation: str, *arguments: Any, factor: float = 1.0) -> int:
        """Add a step; the register of its result."""
        reads = [self.value(argument) for argument in arguments]
        self.program.steps.append(Step(operation, reads, self._new(), factor))
        self.handles[self.program.steps[-1].writes] = self.debug_handles()
        return self.program.steps[-1].writes


@TABLE.converts(aten.add.Tensor)
def add(compiler: Compiler, node: Node, a: Node, b: Node, alpha: float) -> int:
    return compiler.emit("add", a, b, factor=alpha)


@TABLE.converts(aten.sub.Tensor)
def sub(compiler: Compiler, node: Node, a: Node, b: Node, alpha: float) -> int:
    return compiler.emit("add", a, b, factor=-alpha)


@TABLE.converts(aten.mul.Tensor)
def mul(compiler: Compiler, node: Node, a: Node, b: Node) -> int:
    return compiler.emit("mul", a, b)


@TABLE.converts(aten.relu.default)
def relu(compiler: Compiler, node: Node, x: Node) -> int:
    return compiler.emit("relu", x)


@TABLE.converts(aten.tanh.default)
def tanh(compiler: Compiler, node: Node, x: Node) -> int:
    return compiler.emit("tanh", x)


def has_bias(node: Node, x: Node, weight: Node, bias: Node | None) -> str | None:
    """None if the device can do it, else the reason, which users read in their report."""
    return None if bias is not None else "SampleName multiplies with a bias only"


@TABLE.converts(aten.linear.default, check=has_bias, keep_whole=True)
def linear(compiler: Compiler, node: Node, x: Node, weight: Node, bias: Node) -> int:
    return compiler.emit("linear", x, weight, bias)


def sample_name_partitioner(*, precision: str = "float32") -> CapabilityBasedPartitioner:
    """Users write `backends=["sample_name{precision=float64}"]`: the keyword parameters are the options.

    A compile spec goes into the file, and comes to both `preprocess` and the other half's `init`.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; the device has {', '.join(PRECISIONS)}")
    specs = [CompileSpec("precision", precision.encode())]
    return CapabilityBasedPartitioner(BACKEND_ID, TABLE.support, specs, keep_whole=TABLE.kept_whole)


class SampleNameLowering(BackendDetails):
    """Behind the backend id `SampleName`."""

    blob_version = FORMAT.version

    @classmethod
    def submits(cls, compile_specs: Any) -> bool:
        """As the half that runs: the memory of independent delegates is planned for their being at work together."""
        return True

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: Any, keys: Any = MappingProxyType({})
    ) -> PreprocessResult:
        compiler = Compiler(keys)
        compiler.program.outputs = compiler.convert_program(edge_program)
        # A blob for each of several revisions of the device: `variant="r2", variants=[BlobVariant("r1", …)]` as well.
        # The other half's `check` says which is for the one that is there (Delegraph's docs, "One file for several
        # devices").
        return PreprocessResult(FORMAT.pack(compiler.program, compiler.sections), compiler.handles)

    @classmethod
    def preprocess_multimethod(cls, edge_programs: Any, compile_specs: Any) -> dict[str, list[PreprocessResult]]:
        """All partitions of a model at once: a weight that several have, in two methods say, is in the file once."""
        return lower_sharing_weights(BACKEND_ID, edge_programs, compile_specs, cls.preprocess)
