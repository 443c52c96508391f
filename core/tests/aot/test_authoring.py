"""The helpers for authors of backends: a table of converters, the walk over a partition, tensors as arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.fx import Node

import delegraph
from delegraph.aot import BackendDetails, CompileSpec, NamedDataStore, PreprocessResult, edge_program
from delegraph.aot.authoring import (
    ConverterTable,
    GraphConverter,
    as_array,
    debug_handles,
    lower_sharing_weights,
    named_arguments,
    numpy_dtype,
    scalar_type,
    symbolic_shape,
    torch_dtype,
    upper_bounds,
)
from delegraph.errors import InvalidPartition, LoweringError, UnsupportedOperator
from delegraph.plugins import PluginRegistry
from delegraph.program.schema import ScalarType
from delegraph.runtime import BackendInterface
from delegraph_partitioners import CapabilityBasedPartitioner

aten = torch.ops.aten
TABLE = ConverterTable("Stack", dtypes={torch.float32})


class Steps(GraphConverter[int]):
    """Values are places in a list; a step computes the next ones, in NumPy, of what stands there."""

    table = TABLE

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[Any]] = []
        self.states: list[list[Any]] = []
        self.handles: dict[int, tuple[int, ...]] = {}
        self.count = 0

    def input(self, node: Node) -> int:
        return self.emit("input")

    def constant(self, node: Node, array: NDArray[Any]) -> int:
        return self.emit("constant", array.tolist())

    def state(self, node: Node, held: Any) -> int:
        return self.emit("state", held.name, as_array(held.tensor).tolist())

    def write_back(self, state: Node, held: Any, source: Node) -> None:
        self.states.append([held.name, self.value(source)])

    def number(self, number: complex) -> int:
        return self.emit("constant", number)

    def emit(self, name: str, *arguments: Any, results: int = 1) -> int:
        self.steps.append([name, *arguments])
        if self.debug_handles():
            self.handles[len(self.steps) - 1] = self.debug_handles()
        self.count += results
        return self.count - results


@TABLE.converts(aten.add.Tensor, aten.sub.Tensor, check=lambda node, a, b, alpha: None if alpha == 1 else "has alpha")
def _(g: Steps, node: Node, a: Any, b: Any, alpha: float) -> int:
    return g.emit(str(node.target).split(".")[1], g.value(a), g.value(b))


@TABLE.converts("aten::mul.Tensor")
def _(g: Steps, node: Node, a: Any, b: Any) -> int:
    known = g.array(b)
    return (
        g.emit("mul", g.value(a), g.value(b))
        if known is None or known.ndim
        else g.emit("scale", g.value(a), known.item())
    )


@TABLE.converts(aten.split_with_sizes_copy.default)
def _(g: Steps, node: Node, x: Node, sizes: Sequence[int], dim: int) -> list[int]:
    first = g.emit("split", g.value(x), list(sizes), dim, results=len(sizes))
    return list(range(first, first + len(sizes)))


@TABLE.converts(aten.full.default)
def _(g: Steps, node: Node, sizes: Sequence[Any], number: float, *_: object) -> int:
    return g.emit("full", [size if isinstance(size, int) else {"size": g.value(size)} for size in sizes], number)


@TABLE.converts(torch.ops.higher_order.cond, dtypes={torch.float32, torch.bool})
def _(g: Steps, node: Node, condition: Node, yes: Node, no: Node, operands: Sequence[Node]) -> list[int]:
    (then,), (otherwise,) = g.inline(yes, operands), g.inline(no, operands)
    return [g.emit("where", g.value(condition), then, otherwise)]


def compiled(program: ExportedProgram, specs: Sequence[CompileSpec], keys: Any) -> PreprocessResult:
    steps = Steps()
    outputs = steps.convert_program(program)
    return PreprocessResult(json.dumps([steps.steps, outputs, steps.states]).encode(), steps.handles)


class Compiles(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return compiled(edge_program, compile_specs, {})


_BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


class Runs(BackendInterface):
    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        steps, outputs, states = json.loads(bytes(processed))
        held = {s[1]: context.mutable_buffer(s[1], np.array(s[2], np.float32)) for s in steps if s[0] == "state"}
        return steps, outputs, states, held

    def execute(self, context: Any, handle: Any, args: Sequence[Any]) -> None:
        steps, outputs, states, held = handle
        inputs, values = iter(args), []
        for name, *said in steps:
            match name, said:
                case "input", []:
                    values.append(next(inputs))
                case "constant", [content]:
                    values.append(np.array(content, np.float32))
                case "state", [buffer, _]:
                    values.append(held[buffer].copy())
                case "split", [x, sizes, dim]:
                    values += np.split(values[x], np.cumsum(sizes)[:-1], dim)
                case "full", [sizes, number]:
                    sizes = [values[s["size"]] if isinstance(s, dict) else s for s in sizes]
                    values.append(np.full(sizes, number, np.float32))
                case "where", [condition, a, b]:
                    values.append(values[a] if values[condition] else values[b])
                case "scale", [x, number]:
                    values.append(values[x] * np.float32(number))
                case binary, [a, b]:
                    values.append(
                        getattr(np, {"mul": "multiply", "sub": "subtract"}.get(binary, binary))(values[a], values[b])
                    )
        for place, out in zip(outputs, inputs, strict=True):
            context.resize(out, values[place].shape)[...] = values[place]
        for buffer, place in states:
            held[buffer][...] = values[place]


def partitioner(**options: Any) -> CapabilityBasedPartitioner:
    return CapabilityBasedPartitioner("Stack", TABLE.support, keep_whole=TABLE.kept_whole, **options)


def lowered(model: nn.Module, args: tuple[Any, ...], *, lowering: Any = Compiles, **options: Any) -> Any:
    registry = PluginRegistry.discover()
    registry.register("lowerings", "Stack", lowering)
    shapes = options.pop("dynamic_shapes", None)
    return delegraph.lower(model, args, backends=[partitioner(**options)], plugins=registry, dynamic_shapes=shapes)


def run(program: Any, *inputs: torch.Tensor) -> Any:
    return delegraph.load(bytes(program), backends={"Stack": Runs()})(*(x.numpy() for x in inputs))


class Model(nn.Module):
    """A model of a function, and a weight."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.arange(3.0))
        self.register_buffer("total", torch.ones(3))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


X, Y = torch.tensor([1.0, -2, 3]), torch.tensor([0.5, 4, -1])


def _counts(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.total.add_(x)
    return m.total * x


# ---- the walk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "shapes"),
    [
        pytest.param(lambda m, x, y: (x + y) * m.weight, (X, Y), None, id="weight"),
        pytest.param(lambda m, x: x * 2.5 - 1, (X,), None, id="numbers"),
        pytest.param(lambda m, x: (lambda a, b: b - a)(*torch.split(x, 2)), (torch.arange(4.0),), None, id="results"),
        pytest.param(lambda m, x: (x + x, x), (X,), None, id="outputs"),
        pytest.param(
            lambda m, x, c: torch.cond(c, lambda x: x + m.weight, lambda x: x * 3.0, (x,)),
            (X, torch.tensor(False)),
            None,
            id="bodies",
        ),
        pytest.param(
            lambda m, x: x + torch.full((x.shape[0],), 2.0),
            (torch.arange(4.0),),
            {"args": ({0: Dim("n", min=2, max=8)},)},
            id="sizes",
        ),
    ],
)
def test_a_partition_is_converted(function: Any, args: tuple[Any, ...], shapes: Any) -> None:
    model = Model(function)
    program = lowered(model, args, dynamic_shapes=shapes)
    report = program.report.methods["forward"]
    assert len(report.delegates) == 1
    result = run(program, *args)
    expected = model(*args)
    flat = [each if isinstance(each, tuple) else (each,) for each in (result, expected)]
    for got, wanted in zip(*flat, strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy())


def test_states_are_read_and_written() -> None:
    program = lowered(Model(_counts), (X,), take_mutated_buffers=True)
    module = delegraph.load(bytes(program), backends={"Stack": Runs()})
    np.testing.assert_allclose(module(X.numpy()), (1 + X) * X)
    np.testing.assert_allclose(module(X.numpy()), (1 + 2 * X) * X)


def test_debug_handles_stand_behind_steps() -> None:
    program = lowered(Model(lambda m, x: (x + x) * m.weight), (X,))
    (delegate,) = program.report.methods["forward"].delegates
    assert delegate.nodes
    steps = Steps()
    add = SimpleNode(7)
    assert steps.debug_handles() == ()
    assert debug_handles(add, SimpleNode(3), SimpleNode(7), SimpleNode(None)) == (3, 7)  # type: ignore[arg-type]


class SimpleNode:
    def __init__(self, handle: int | None) -> None:
        self.meta = {} if handle is None else {"debug_handle": handle}


@pytest.mark.parametrize(
    ("hook", "function", "message"),
    [
        ("input", lambda m, x: x + x, r"Stack has no inputs[\s\S]*node: "),
        ("constant", lambda m, x: x + m.weight, r"Stack has no constants[\s\S]*node: .*weight"),
        ("state", _counts, r"Stack has no mutable buffers[\s\S]*node: "),
        ("write_back", _counts, r"Stack has no mutable buffers[\s\S]*node: "),
    ],
)
def test_what_an_author_does_not_override_is_refused(hook: str, function: Any, message: str) -> None:
    converter = type("Partial", (Steps,), {hook: getattr(GraphConverter, hook)})
    program = edge_program(export(Model(function), (X,)), partitioner(take_mutated_buffers=True))
    with pytest.raises(UnsupportedOperator, match=message):
        converter().convert_program(program)


def test_a_converter_without_numbers_and_external_weights() -> None:
    class Tensors(GraphConverter[int]):
        table = TABLE

    with pytest.raises(UnsupportedOperator, match=r"^Stack has no values for numbers such as 2"):
        Tensors().number(2)
    weight, held = call_of(lambda m, x: x.relu(), X), SimpleNamespace(name="w")
    with pytest.raises(LoweringError, match=r"Stack does not take external weights[\s\S]*node: "):
        Tensors().external(weight, held, "weights")  # type: ignore[arg-type]


# ---- the table ------------------------------------------------------------------------------------------------------


def call_of(function: Any, *args: Any) -> Node:
    """The last call of a function, in an edge program."""
    program = edge_program(export(Model(function), args), partitioner())
    return [node for node in program.graph.nodes if node.op == "call_function"][-1]


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (lambda m, x: x + x, (X,), None),
        (lambda m, x: torch.add(x, x, alpha=2), (X,), "has alpha"),
        (lambda m, x: x + x, (X.int(),), "int32 tensors: this operator is for float32"),
        (lambda m, x: x.relu(), (X,), "no converter for aten.relu.default"),
        (lambda m, x: x.topk(2)[0], (X,), "aten_topk_default is left: no converter for aten.topk.default"),
    ],
    ids=["taken", "check", "dtypes", "operator", "element"],
)
def test_support_gives_the_reason(function: Any, args: tuple[Any, ...], reason: str | None) -> None:
    assert TABLE.support(call_of(function, *args)) == reason


def test_a_node_that_was_declined_is_not_converted() -> None:
    with pytest.raises(UnsupportedOperator, match=r"Stack cannot convert aten.relu.default: .*no converter[\s\S]*at: "):
        TABLE.convert(Steps(), call_of(lambda m, x: x.relu(), X))


def test_a_check_that_returns_a_bool() -> None:
    table = ConverterTable("Bools")

    @table.converts(aten.relu.default, check=lambda node, x: True)
    def relu(g: Any, node: Node, x: Node) -> None: ...

    with pytest.raises(InvalidPartition, match=r"of Bools returned True; it returns None for a node that the backend"):
        table.support(call_of(lambda m, x: x.relu(), X))


def test_two_converters_for_one_operator() -> None:
    with pytest.raises(ValueError, match=r"Stack has two converters for aten.add.Tensor"):
        TABLE.converts(aten.add.Tensor)(lambda *_: None)


def test_operators_kept_whole() -> None:
    table = ConverterTable("Whole")
    table.converts(aten.gelu.default, keep_whole=True)(lambda *_: None)
    table.converts(aten.relu.default)(lambda *_: None)
    assert table.kept_whole == [aten.gelu.default]
    assert list(table) == [aten.gelu.default, aten.relu.default]


def test_arguments_by_name() -> None:
    node = call_of(lambda m, x: x.topk(2, largest=False)[0], X).args[0]
    assert isinstance(node, Node)
    said = named_arguments(node)
    assert {name: said[name] for name in ("k", "dim", "largest", "sorted")} == {
        "k": 2, "dim": -1, "largest": False, "sorted": True}  # fmt: skip


def test_sizes_that_change() -> None:
    n = Dim("n", min=2, max=8)
    program = export(Model(lambda m, x: torch.cat([x, x]) + 1), (torch.ones(4, 3),), dynamic_shapes={"args": ({0: n},)})
    program = edge_program(program, partitioner())
    placeholder = program.graph.find_nodes(op="placeholder")[-1]
    (size, three), (twice, _) = symbolic_shape(placeholder), symbolic_shape(program.graph.output_node().args[0][0])
    assert (three, twice) == (3, f"2*{size}")
    assert upper_bounds(program, program.graph.output_node().args[0][0]) == (16, 3)


# ---- dtypes and tensors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "numpy", "code"),
    [
        (torch.float32, np.float32, ScalarType.FLOAT),
        (torch.bfloat16, ml_dtypes.bfloat16, ScalarType.BFLOAT16),
        (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, ScalarType.FLOAT8E4M3FN),
        (torch.bool, np.bool_, ScalarType.BOOL),
        (torch.uint16, np.uint16, ScalarType.UINT16),
    ],
)
def test_dtypes_of_torch_numpy_and_the_file(dtype: torch.dtype, numpy: Any, code: ScalarType) -> None:
    assert numpy_dtype(dtype) == numpy_dtype(code) == np.dtype(numpy)
    assert torch_dtype(np.dtype(numpy)) == torch_dtype(code) == dtype
    assert scalar_type(dtype) == scalar_type(np.dtype(numpy)) == code


def test_a_dtype_that_no_program_holds() -> None:
    with pytest.raises(LoweringError, match="quint8 tensors cannot stand in a program"):
        numpy_dtype(torch.quint8)


def test_tensors_as_arrays() -> None:
    tensor = torch.randn(3, 4)
    assert np.shares_memory(as_array(tensor), tensor.numpy())
    np.testing.assert_array_equal(as_array(tensor.T), tensor.numpy().T)
    assert as_array(tensor.T).flags.c_contiguous
    halves = as_array(tensor.bfloat16())
    np.testing.assert_array_equal(halves.astype(np.float32), tensor.bfloat16().float().numpy())
    assert as_array(torch.tensor(3)).shape == ()
    assert as_array(torch.empty(2, 0)).shape == (2, 0)


# ---- weights that partitions share ----------------------------------------------------------------------------------


class Convolutions(nn.Module):
    """Two methods with one weight, which lies in two ways."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.arange(48.0).reshape(4, 3, 2, 2)
        self.first = nn.Parameter(weight.to(memory_format=torch.channels_last))
        self.second = nn.Parameter(weight.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.first).relu() + self.second


def test_shared_weights_by_one_call() -> None:
    seen: list[dict[str, str]] = []

    class Shares(Compiles):
        @classmethod
        def preprocess_multimethod(cls, edge_programs: Any, compile_specs: Any) -> Any:
            def remembered(program: ExportedProgram, specs: Any, keys: Any) -> PreprocessResult:
                seen.append(dict(keys))
                own = NamedDataStore()
                own.add_named_data("mine", b"own")
                return replace(compiled(program, specs, keys), data_store_output=own.get_named_data_store_output())

            return lower_sharing_weights("Stack", edge_programs, compile_specs, remembered)

    model = Convolutions()
    program = lowered(model, (torch.ones(4, 3, 2, 2),), lowering=Shares)
    (key,) = {key for keys in seen for key in keys.values()}
    assert [list(keys) for keys in seen] == [["p_first"], ["p_second"]]
    named = delegraph.load(bytes(program), backends={"Stack": Runs()}).program.named_data
    np.testing.assert_array_equal(np.frombuffer(named[key], np.float32), np.arange(48, dtype=np.float32))
    assert bytes(named["mine"]) == b"own"
