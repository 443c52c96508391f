"""ExecuTorch's passes under its module paths: what each makes of a graph, and that lowered programs still run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._export.verifier import SpecViolationError
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram, export
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult
from torch.testing import assert_close

import delegraph
from delegraph.aot import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    exir_ops,
    program_text,
    to_edge,
)
from delegraph.errors import LoweringError, MissingOutVariant
from delegraph_executorch.exir import memory
from delegraph_executorch.exir.common import extract_out_arguments, format_schema_name, setting_python_recursive_limit
from delegraph_executorch.exir.dynamic_shape import DynamicMemoryPlanningMode
from delegraph_executorch.exir.error import ExportError, InternalError, internal_assert
from delegraph_executorch.exir.graph_module import (
    bfs_trace_with_node_process,
    get_cond_while_submodules,
    get_control_flow_submodules,
    get_scan_submodules,
)
from delegraph_executorch.exir.operator.convert import to_out_variant
from delegraph_executorch.exir.pass_base import ArgSchema, map_args
from delegraph_executorch.exir.pass_manager import ExportedProgramPassManager, PassManager
from delegraph_executorch.exir.passes import (
    ConstPropPass,
    DebugPass,
    NormalizeTransposePass,
    PruneEmptyTensorsPass,
    RemoveNoopPass,
    RemoveToCopyPass,
    ReplaceBrokenOpsWithFunctionalOpsPass,
    ScalarToTensorPass,
    SpecPropPass,
    ToOutVarPass,
    dead_code_elimination_pass,
    make_alloc_node,
    propagate_dynamic_shape,
    remove_unused_parameters_pass,
)
from delegraph_executorch.exir.passes.constant_prop_pass import constant_prop_pass
from delegraph_executorch.exir.passes.cse_pass import CSEPass
from delegraph_executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from delegraph_executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass
from delegraph_executorch.exir.passes.memory_format_ops_pass import DimOrderOpsRevertPass, MemoryFormatOpsPass
from delegraph_executorch.exir.passes.quant_fusion_pass import QuantFusionPass, quant_fusion_and_const_prop_pass
from delegraph_executorch.exir.passes.quantization import pack_embedding_weight
from delegraph_executorch.exir.passes.reinplace import reinplace_pass
from delegraph_executorch.exir.passes.remove_graph_asserts_pass import RemoveGraphAssertsPass
from delegraph_executorch.exir.passes.replace_view_copy_with_view_pass import ReplaceViewCopyWithViewPass
from delegraph_executorch.exir.passes.sym_shape_eval_pass import (
    ConstraintBasedSymShapeEvalPass,
    HintBasedSymShapeEvalPass,
)
from delegraph_executorch.exir.verification.verifier import EXIREdgeDialectVerifier, get_aten_verifier

aten, quantized = exir_ops.edge.aten, exir_ops.edge.quantized_decomposed
X = torch.linspace(-2, 2, 6).reshape(2, 3)
INT8 = (0.5, 3, -128, 127, torch.int8)


def model(function: Any, **parts: Any) -> nn.Module:
    """A module that calls `function(self, *inputs)`."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *inputs: torch.Tensor) -> Any:
            return function(self, *inputs)

    return Model().eval()


def edge(function: Any, *args: Any, shapes: Any = None, **parts: Any) -> EdgeProgramManager:
    return to_edge(export(model(function, **parts), args, dynamic_shapes=shapes))


def graph_of(function: Any, *args: Any, **parts: Any) -> GraphModule:
    return edge(function, *args, **parts).exported_program().graph_module


def called(module: GraphModule | ExportedProgram) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def run(manager: EdgeProgramManager, *args: torch.Tensor, **config: Any) -> torch.Tensor:
    program = delegraph.load(bytes(manager.to_executorch(ExecutorchBackendConfig(**config)).buffer))
    return torch.from_numpy(program(*(a.numpy() for a in args)))


# ---- passes of graphs ------------------------------------------------------------------------------


def test_dead_code_is_gone_from_bodies_too() -> None:
    module = graph_of(lambda _, x: torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.sigmoid(), (x,)), X)
    for _, body, _ in get_control_flow_submodules(module):
        with body.graph.inserting_before(body.graph.output_node()):
            body.graph.call_function(aten.neg.default, (next(iter(body.graph.nodes)),))
    assert dead_code_elimination_pass(module).modified
    assert not any("neg" in name for _, body, _ in get_control_flow_submodules(module) for name in called(body))
    assert not dead_code_elimination_pass(module).modified


def test_equal_calls_are_one_but_for_random_and_returned_ones() -> None:
    module = graph_of(lambda _, x: (x.neg().abs() + x.neg().abs(), x.neg().abs()), X)
    result = CSEPass()(module)
    assert result is not None
    assert called(result.graph_module).count("aten.neg.default") == 1
    assert called(result.graph_module).count("aten.abs.default") == 2  # one of them is an output
    assert not CSEPass()(graph_of(lambda _, x: x.relu() + x.neg(), X)).modified  # type: ignore[union-attr]


def test_numbers_become_constant_tensors() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2, 3, device="meta")
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (x, 3.0)),))
    module = GraphModule(nn.Module(), graph)
    result = ScalarToTensorPass()(module)
    assert result is not None
    assert result.modified
    assert_close(result.graph_module(X), (X * 3,))
    assert not ScalarToTensorPass()(result.graph_module).modified  # type: ignore[union-attr]


def test_what_gives_its_argument_is_removed() -> None:
    kept = EdgeCompileConfig(_check_ir_validity=False)
    sliced = export(model(lambda _, x: torch.ops.aten.slice_copy.Tensor(x, 0, 0, 9) + x[:1]), (X,))
    result = to_edge(sliced, compile_config=kept).transform([RemoveNoopPass()])
    assert called(result.exported_program()).count("aten.slice_copy.Tensor") == 1
    cast = export(model(lambda _, x: torch.ops.aten._to_copy.default(x, dtype=torch.float32).relu()), (X,)).graph_module
    assert RemoveToCopyPass()(cast).modified  # type: ignore[union-attr]
    assert "aten._to_copy.default" not in called(cast)


def test_empty_parts_of_a_concatenation_are_removed() -> None:
    module = graph_of(lambda _, x: torch.cat([x[:0], x, x]), X)
    assert PruneEmptyTensorsPass()(module).modified  # type: ignore[union-attr]
    (cat,) = module.graph.find_nodes(op="call_function", target=aten.cat.default)
    assert len(cat.args[0]) == 2
    nothing = graph_of(lambda _, x: torch.cat([x[:0], x[:0]]), X)
    PruneEmptyTensorsPass()(nothing)
    assert called(nothing) == ["aten.full.default"]


def test_views_and_transposes_become_copies() -> None:
    module = export(model(lambda _, x: x.t().view(6)), (X.t().contiguous().t(),)).graph_module
    result = PassManager([NormalizeTransposePass(), ReplaceBrokenOpsWithFunctionalOpsPass()])(module)
    assert called(result.graph_module) == ["aten.t_copy.default", "aten.view_copy.default"]


def test_assertions_are_removed() -> None:
    def asserted(_: Any, x: torch.Tensor) -> torch.Tensor:
        n = x.sum().to(torch.int64).item()
        torch._check(n > 2)
        return x * n

    module = export(model(asserted), (torch.ones(5),)).graph_module
    assert any("_assert_scalar" in name for name in called(module))
    assert RemoveGraphAssertsPass()(module).modified  # type: ignore[union-attr]
    assert not any("assert" in name for name in called(module))


def test_constants_of_a_graph_are_computed() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = FakeTensorMode(allow_non_fake_inputs=True).from_tensor(torch.empty(3))
    negated = graph.call_function(torch.ops.aten.neg.default, (graph.get_attr("table"),))
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (x, negated)),))
    root = nn.Module()
    root.register_buffer("table", torch.arange(3.0))
    result = ConstPropPass()(GraphModule(root, graph))
    assert result is not None
    assert called(result.graph_module) == ["aten.add.Tensor"]
    assert_close(result.graph_module(torch.ones(3)), (torch.tensor([1.0, 0.0, -1.0]),))


def test_copies_by_dim_order_and_by_memory_format() -> None:
    x = torch.randn(1, 2, 3, 4)
    manager = edge(lambda _, x: x.to(memory_format=torch.channels_last).relu(), x)
    by_format = DimOrderOpsRevertPass()(manager.exported_program().graph_module)
    assert by_format is not None
    (copied,) = by_format.graph_module.graph.find_nodes(op="call_function", target=aten._to_copy.default) or (
        by_format.graph_module.graph.find_nodes(op="call_function", target=aten.clone.default)
    )
    assert copied.kwargs["memory_format"] is torch.channels_last
    by_order = MemoryFormatOpsPass()(by_format.graph_module)
    assert by_order is not None
    assert any("dim_order_ops" in name for name in called(by_order.graph_module))
    assert called(by_order.graph_module) == called(manager.exported_program())


def test_a_graph_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    DebugPass(msg="here", show_src=True, show_spec=True, log_filename=str(log))(graph_of(lambda _, x: x.relu(), X))
    text = log.read_text()
    assert "here" in text
    assert " aten.relu.default, cnt 1" in text
    assert "> test_passes.py:" in text
    assert "val: FakeTensor" in text
    assert logging.getLogger().level == logging.WARNING
    DebugPass(enable_debug_pass=False, log_filename=str(tmp_path / "none"))(graph_of(lambda _, x: x.relu(), X))
    assert not (tmp_path / "none").exists()


# ---- specs, sizes and out variants -----------------------------------------------------------------

N: Any = ({0: Dim("n", min=1, max=8)},)


def dynamic() -> EdgeProgramManager:
    return to_edge(export(model(lambda _, x: (x * x).relu()), (torch.ones(3, 2),), dynamic_shapes=((N[0],),)))


@pytest.mark.parametrize(
    ("evaluates", "size"), [(ConstraintBasedSymShapeEvalPass(), 8), (HintBasedSymShapeEvalPass(), 3)]
)
def test_sizes_of_specs_are_bounds_or_the_example(evaluates: Any, size: int) -> None:
    program = dynamic().transform([SpecPropPass(), evaluates]).exported_program()
    specs = [node.meta["spec"] for node in program.graph.nodes if node.op != "output"]
    assert {tuple(spec.shape) for spec in specs} == {(size, 2)}
    output = program.graph.output_node()
    assert output.meta["spec"][0] is output.args[0][0].meta["spec"]  # type: ignore[index,union-attr]


def test_memory_is_planned_for_the_example_if_that_is_asked_for() -> None:
    bounded = dynamic().to_executorch()
    example = dynamic().transform([HintBasedSymShapeEvalPass()]).to_executorch()
    load = [delegraph.load(bytes(each.buffer)) for each in (bounded, example)]
    x = torch.ones(3, 2)
    for program in load:
        assert_close(torch.from_numpy(program(x.numpy())), x)
    assert load[0](torch.ones(8, 2).numpy()).shape == (8, 2)
    with pytest.raises(delegraph.errors.RuntimeFault):
        load[1](torch.ones(8, 2).numpy())


def test_dynamic_shapes_are_propagated_by_upper_bounds_alone() -> None:
    assert [type(each).__name__ for each in propagate_dynamic_shape()] == ["SpecPropPass", "HintBasedSymShapeEvalPass"]
    with pytest.raises(LoweringError, match="by upper bounds"):
        propagate_dynamic_shape(DynamicMemoryPlanningMode.SYMBOLIC)


def test_specs_of_weights_are_constant() -> None:
    program = edge(lambda self, x: self.linear(x), X, linear=nn.Linear(3, 3)).exported_program()
    result = SpecPropPass()(program.graph_module)
    assert result is not None
    SpecPropPass().update_placeholder_tensor_specs(program, result.graph_module)
    constant = [node.meta["spec"].const for node in result.graph_module.graph.find_nodes(op="placeholder")]
    assert constant == [True, True, False]
    with pytest.raises(RuntimeError, match="run SpecPropPass before"):
        SpecPropPass().update_placeholder_tensor_specs(program, program.graph_module)


def test_operators_become_out_variants_on_allocated_memory() -> None:
    module = SpecPropPass()(graph_of(lambda _, x: x.relu().topk(2)[0], X)).graph_module  # type: ignore[union-attr]
    ToOutVarPass()(module)
    relu, topk = (n for n in module.graph.nodes if isinstance(n.target, torch._ops.OpOverload))
    assert (str(relu.target), str(topk.target)) == ("aten.relu.out", "aten.topk.values")
    assert relu.kwargs["out"].target is memory.alloc
    assert relu.kwargs["out"].args == (((2, 3), torch.float32),)
    assert sorted(topk.kwargs) == ["indices", "values"]
    assert_close(module(X)[0], X.relu().topk(2)[0])


def test_an_operator_without_out_variant_is_told() -> None:
    with torch.library._scoped_library("executorch_passes_test", "DEF") as library:
        library.define("lonely(Tensor x) -> Tensor")
        library.impl("lonely", torch.clone, "CompositeExplicitAutograd")
        function = lambda _, x: torch.ops.executorch_passes_test.lonely(x)  # noqa: E731
        with pytest.raises(MissingOutVariant, match="executorch_passes_test::lonely"):
            ToOutVarPass()(graph_of(function, X))
        kept = graph_of(function, X)
        ToOutVarPass(ignore_to_out_var_failure=True)(kept)
        assert called(kept) == ["executorch_passes_test.lonely.default"]
    with pytest.raises(InternalError, match="nothing is known of a tensor"):
        make_alloc_node(graph_of(lambda _, x: x.relu(), X), None)


def test_out_variants_by_edge_and_by_aten_operator() -> None:
    assert to_out_variant(aten.add.Tensor) == (torch.ops.aten.add.out, ("out",))
    assert to_out_variant(torch.ops.aten.topk.default) == (torch.ops.aten.topk.values, ("values", "indices"))
    assert to_out_variant(torch.ops.aten.add.out) == (torch.ops.aten.add.out, ("out",))


def test_views_lie_in_the_memory_of_their_base() -> None:
    module = SpecPropPass()(graph_of(lambda _, x: x.relu().view(6) + 1, X)).graph_module  # type: ignore[union-attr]
    assert ReplaceViewCopyWithViewPass()(module).modified  # type: ignore[union-attr]
    (view,) = module.graph.find_nodes(op="call_function", target=memory.view)
    assert list(view.meta["spec"].shape) == [6]


# ---- passes of programs ----------------------------------------------------------------------------


def test_constants_of_a_program_are_computed() -> None:
    weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    manager = edge(lambda self, x: x + (self.weight * 2).relu(), X, weight=weight)
    expected = X + (weight * 2).relu()
    program = constant_prop_pass(manager.exported_program())
    assert called(program) == ["aten.add.Tensor"]
    assert list(program.constants) == ["_prop_tensor_constant0"]
    assert program.state_dict == {}
    assert_close(program.module()(X), expected)
    assert_close(run(EdgeProgramManager(program), X), expected.detach())


def test_weights_of_an_aten_program_are_dequantized_and_those_of_an_edge_program_are_left() -> None:
    operators = torch.ops.quantized_decomposed

    def scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x + operators.dequantize_per_tensor(self.weight, 0.5, 0, -128, 127, torch.int8)

    manager = edge(scaled, X, weight=nn.Buffer(torch.tensor([[2, 4, 6]], dtype=torch.int8)))
    program = constant_prop_pass(manager.exported_program())
    assert called(program) == ["quantized_decomposed.dequantize_per_tensor.default", "aten.add.Tensor"]
    for node in program.graph.nodes:
        node.target = getattr(node.target, "_op", node.target)
    program = constant_prop_pass(program)
    assert called(program) == ["aten.add.Tensor"]
    assert_close(program.module()(X), X + torch.tensor([[1.0, 2.0, 3.0]]))


def test_a_constant_output_is_a_copy_of_the_constant() -> None:
    program = constant_prop_pass(
        edge(lambda self, x: (x, self.weight.neg()), X, weight=nn.Parameter(X)).exported_program()
    )
    assert called(program) == ["aten.clone.default"]
    assert_close(program.module()(X), (X, -X))


def test_states_and_random_numbers_are_no_constants() -> None:
    def steps(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(1)
        return x + self.state + torch.rand_like(self.weight)

    manager = edge(steps, X, state=nn.Buffer(torch.zeros(3)), weight=nn.Parameter(X))
    before = called(manager.exported_program())
    assert called(constant_prop_pass(manager.exported_program())) == before


def test_unused_parameters_are_removed() -> None:
    manager = edge(lambda self, x: self.used(x), X, used=nn.Linear(3, 3), unused=nn.Linear(3, 3))
    program = remove_unused_parameters_pass(manager.exported_program())
    assert sorted(program.state_dict) == ["used.bias", "used.weight"]
    assert len(program.graph_signature.input_specs) == 3


def test_write_backs_become_copies() -> None:
    def steps(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.state.add_(x)
        return self.state * 2

    program = edge(steps, X, state=nn.Buffer(torch.zeros(2, 3))).exported_program()
    module, signature = insert_write_back_for_buffers_pass(program)
    (copied,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    assert copied.args[0].name == "b_state"  # type: ignore[union-attr]
    assert signature.output_specs[0].arg.name == copied.name


def test_updates_in_place_where_the_old_value_is_dead() -> None:
    def steps(self: Any, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.state.index_put_((i,), x)
        return self.state + 1

    i = torch.tensor([1])
    manager = edge(steps, i, X[:1], state=nn.Buffer(torch.zeros(2, 3)))
    program = reinplace_pass(manager.exported_program())
    assert "aten.index_put_.default" in called(program)
    with pytest.raises(ValueError, match="Schema mismatch"):
        reinplace_pass(program, inplace_overrides={aten.add.Tensor: aten.relu_.default})
    with pytest.raises(ValueError, match="Suspicious registration"):
        reinplace_pass(program, inplace_overrides={aten.add.Tensor: aten.sub_.Tensor})


def test_first_values_of_buffers_are_kept_in_any_case() -> None:
    def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count

    manager = edge(counts, X, count=nn.Buffer(torch.tensor([5.0])))
    for each in (manager, manager.transform([InitializedMutableBufferPass(["count"])])):
        assert_close(run(each, X), X + 6)


# ---- quantization ----------------------------------------------------------------------------------


def dequantized(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.quantized_decomposed.dequantize_per_tensor(x, *INT8)


def requantized(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.quantized_decomposed.quantize_per_tensor(x, *INT8)


UNCHECKED = EdgeCompileConfig(_check_ir_validity=False)


def test_additions_and_moves_need_no_float() -> None:
    def net(_: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = requantized(dequantized(requantized(x)) + dequantized(requantized(y)))
        return dequantized(requantized(dequantized(total).view(6)))

    exported = export(model(net), (X, X))
    manager = to_edge(exported, compile_config=UNCHECKED).transform([QuantFusionPass()])
    names = called(manager.exported_program())
    assert names.count("quantized_decomposed.add.default") == 1
    assert names.count("quantized_decomposed.quantize_per_tensor.default") == 2
    assert names.count("quantized_decomposed.dequantize_per_tensor.default") == 1
    assert_close(manager.exported_program().module()(X, X), exported.module()(X, X))
    assert_close(run(manager, X, X), exported.module()(X, X))


def test_an_embedding_reads_its_quantized_table() -> None:
    table, scales = torch.randint(-128, 127, (10, 8), dtype=torch.int8), torch.rand(10) + 0.1
    zeros = torch.randint(-3, 3, (10,))

    def net(self: Any, i: torch.Tensor) -> torch.Tensor:
        weight = torch.ops.quantized_decomposed.dequantize_per_channel(
            self.table, self.scales, self.zeros, 0, -128, 127, torch.int8
        )
        return nn.functional.embedding(i, weight)

    i = torch.tensor([3, 9, 0])
    exported = export(model(net, table=nn.Buffer(table), scales=nn.Buffer(scales), zeros=nn.Buffer(zeros)), (i,))
    program = quant_fusion_and_const_prop_pass(to_edge(exported, compile_config=UNCHECKED).exported_program())
    assert called(program) == ["quantized_decomposed.embedding_byte.default"]
    assert_close(program.module()(i), exported.module()(i))
    assert_close(run(EdgeProgramManager(program), i), exported.module()(i))


def test_a_symmetric_embedding_of_torchao_has_no_zero_points() -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="its tensors are the subject")
    embedding = nn.Sequential(nn.Embedding(10, 64))
    config = quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=quantization.PerGroup(32))
    quantization.quantize_(embedding, config, lambda module, _: isinstance(module, nn.Embedding))
    i = torch.tensor([3, 9, 0])
    expected = embedding(i)
    kept = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=[torch.ops.torchao.dequantize_affine.default])
    program = to_edge(export(embedding, (i,)), compile_config=kept).exported_program()
    program = quant_fusion_and_const_prop_pass(program)
    (node,) = program.graph.find_nodes(
        op="call_function", target=exir_ops.edge.quantized_decomposed.embedding_4bit.default
    )
    assert node.args[2] is None
    assert_close(program.module()(i), expected)


def test_a_table_that_torchao_quantized_is_packed() -> None:
    pytest.importorskip("torchao", reason="its operators are the subject")
    import torchao.quantization.quant_primitives  # noqa: F401 - registers them

    table = torch.randint(-8, 8, (10, 8), dtype=torch.int8)
    scales, zeros = torch.rand(10, 2) + 0.1, torch.zeros(10, 2, dtype=torch.int8)

    def net(self: Any, i: torch.Tensor) -> torch.Tensor:
        weight = torch.ops.torchao.dequantize_affine(
            self.table, (1, 4), self.scales, self.zeros, torch.int8, -8, 7, output_dtype=torch.float32
        )
        return nn.functional.embedding(i, weight)

    i = torch.tensor([3, 9, 0])
    exported = export(model(net, table=nn.Buffer(table), scales=nn.Buffer(scales), zeros=nn.Buffer(zeros)), (i,))
    kept = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=[torch.ops.torchao.dequantize_affine.default])
    program = quant_fusion_and_const_prop_pass(to_edge(exported, compile_config=kept).exported_program())
    assert called(program) == ["quantized_decomposed.embedding_4bit.default"]
    assert [tuple(t.shape) for t in program.constants.values()] == [(10, 4)]
    assert_close(program.module()(i), exported.module()(i))
    assert_close(run(EdgeProgramManager(program), i), exported.module()(i))


@pytest.mark.parametrize(("bits", "width"), [(2, 2), (4, 4), (8, 8)])
def test_packed_tables(bits: int, width: int) -> None:
    table = torch.arange(16).reshape(2, 8).remainder(2**bits).to(torch.int8) - 2 ** (bits - 1)
    packed = pack_embedding_weight(table, bits)
    assert packed.shape == (2, width)
    name = {8: "embedding_byte", 4: "embedding_4bit", 2: "embedding_2bit"}[bits]
    read = getattr(torch.ops.quantized_decomposed, name)
    rows = read(packed, torch.tensor([1.0, 2.0]), None, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, torch.tensor([1, 0]))
    assert_close(rows, torch.stack([table[1] * 2.0, table[0] * 1.0]))


# ---- managers, verifiers, and what code of passes calls ----------------------------------------------


class Doubles(ExportedProgramPassBase):
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        for name, held in exported_program.state_dict.items():
            exported_program.state_dict[name] = nn.Parameter(held * 2)
        return ExportedProgramPassResult(exported_program, True)


def to_tanh(module: GraphModule) -> PassResult:
    found = module.graph.find_nodes(op="call_function", target=aten.relu.default)
    for node in found:
        node.target = aten.tanh.default
    return PassResult(module, bool(found))


def test_a_manager_of_programs_runs_both_kinds_and_is_a_pass() -> None:
    linear = nn.Linear(3, 3)
    manager = edge(lambda self, x: self.linear(x).relu(), X, linear=linear)
    passes = ExportedProgramPassManager([to_tanh, [Doubles()]], run_checks_after_each_pass=True)
    program = manager.transform(passes).exported_program()
    assert_close(program.module()(X), (linear(X) * 2).tanh())
    assert not ExportedProgramPassManager([to_tanh])(program).modified


def test_a_manager_names_the_pass_that_failed() -> None:
    def breaks(module: GraphModule) -> PassResult:
        with module.graph.inserting_before(module.graph.output_node()):
            module.graph.call_method("relu", (next(iter(module.graph.nodes)),))
        return PassResult(module, True)

    manager = ExportedProgramPassManager([to_tanh, breaks], run_checks_after_each_pass=True)
    program = edge(lambda _, x: x.relu(), X).exported_program()
    with pytest.raises(LoweringError, match=r"pass breaks failed \(passes before it: to_tanh\): .*call_method"):
        manager(program)
    with pytest.raises(Exception, match="call_method"):
        PassManager([breaks], run_checks_after_each_pass=True)(program.graph_module)


def test_verifiers() -> None:
    program = edge(lambda _, x: x.view(6).relu(), X).exported_program()
    verifier = EXIREdgeDialectVerifier()
    verifier(program)
    assert verifier.is_valid(program.graph_module)
    verifier.check_valid_edge_op(quantized.add.default)
    aliased = export(model(lambda _, x: x.view(6).relu()), (X,))
    with pytest.raises(SpecViolationError, match="returns a view"):
        verifier(aliased)
    assert EXIREdgeDialectVerifier(EdgeCompileConfig(_check_ir_validity=False)).is_valid(aliased)
    with pytest.raises(SpecViolationError, match="is not core ATen"):
        get_aten_verifier(EdgeCompileConfig())().check_valid_op(torch.ops.aten.linear.default)
    get_aten_verifier(EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default]))().check_valid_op(
        torch.ops.aten.linear.default
    )


def test_verifiers_ask_for_layouts_as_the_config_has_them() -> None:
    def to_channels_last(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float64, memory_format=torch.channels_last)

    image = torch.ones(1, 2, 3, 4)
    by_order, by_format = EdgeCompileConfig(), EdgeCompileConfig(_skip_dim_order=True)
    programs = {
        config: to_edge(export(model(to_channels_last), (image,)), compile_config=config).exported_program()
        for config in (by_order, by_format)
    }
    for config, program in programs.items():
        EXIREdgeDialectVerifier(config)(program)
    with pytest.raises(SpecViolationError, match="_skip_dim_order=False asks for a dim order"):
        EXIREdgeDialectVerifier(by_order)(programs[by_format])
    with pytest.raises(SpecViolationError, match="_skip_dim_order=True asks for memory formats"):
        EXIREdgeDialectVerifier(by_format)(programs[by_order])


def test_arguments_are_mapped_with_their_schemas() -> None:
    seen: dict[str, Any] = {}

    def record(value: Any, schema: ArgSchema) -> Any:
        seen[schema.name] = value
        return value

    assert map_args(torch.ops.aten.add.Tensor, record, (1, 2), {"alpha": 3}) == ((1, 2), {"alpha": 3})
    assert seen == {"self": 1, "other": 2, "alpha": 3}


def test_bodies_are_listed_with_their_calls() -> None:
    module = graph_of(lambda _, x: torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.sigmoid(), (x,)), X)
    nodes: list[Node] = []
    bfs_trace_with_node_process(module, nodes.append)
    assert {"aten.relu.default", "aten.sigmoid.default"} <= {str(node.target) for node in nodes}
    bodies = get_control_flow_submodules(module)
    assert [str(call.target) for _, _, call in bodies] == ["cond", "cond"]
    assert (len(get_cond_while_submodules(module)), get_scan_submodules(module)) == (2, [])


def test_errors_and_schemas() -> None:
    with pytest.raises(InternalError, match="broken"):
        internal_assert(False, "broken")
    internal_assert(True, "fine")
    assert issubclass(ExportError, LoweringError)
    schema = torch.ops.aten.topk.values._schema
    assert extract_out_arguments(schema, {"values": 1, "indices": 2}) == [("values", 1), ("indices", 2)]
    assert format_schema_name(schema) == "aten::topk.values"
    assert format_schema_name(torch.ops.aten.relu.default._schema) == "aten::relu"
    with setting_python_recursive_limit(5000):
        pass


def test_a_graph_is_the_same_text_after_passes_that_change_nothing() -> None:
    manager = edge(lambda _, x: x.relu(), X)
    after = manager.transform([RemoveNoopPass(), CSEPass(), ScalarToTensorPass()])
    assert program_text(after.exported_program()) == program_text(manager.exported_program())
