"""Passes that are the wheel's own under `delegraph_executorch`, on our graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plugins.executorch.tests.edge_graphs import called, edge, graph_of, model, run
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import export
from torch.fx import Graph, GraphModule
from torch.testing import assert_close

from delegraph.aot import (
    EdgeCompileConfig,
    EdgeProgramManager,
    exir_ops,
    program_text,
    to_edge,
)
from delegraph_executorch.exir import memory
from delegraph_executorch.exir.pass_manager import PassManager
from delegraph_executorch.exir.passes import (
    ConstPropPass,
    NormalizeTransposePass,
    PruneEmptyTensorsPass,
    RemoveNoopPass,
    RemoveToCopyPass,
    ReplaceBrokenOpsWithFunctionalOpsPass,
    ScalarToTensorPass,
    SpecPropPass,
    remove_unused_parameters_pass,
)
from delegraph_executorch.exir.passes.constant_prop_pass import constant_prop_pass
from delegraph_executorch.exir.passes.cse_pass import CSEPass
from delegraph_executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from delegraph_executorch.exir.passes.insert_write_back_for_buffers_pass import insert_write_back_for_buffers_pass
from delegraph_executorch.exir.passes.memory_format_ops_pass import DimOrderOpsRevertPass, MemoryFormatOpsPass
from delegraph_executorch.exir.passes.quant_fusion_pass import quant_fusion_and_const_prop_pass
from delegraph_executorch.exir.passes.reinplace import reinplace_pass
from delegraph_executorch.exir.passes.remove_graph_asserts_pass import RemoveGraphAssertsPass
from delegraph_executorch.exir.passes.replace_view_copy_with_view_pass import ReplaceViewCopyWithViewPass

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

aten, quantized = exir_ops.edge.aten, exir_ops.edge.quantized_decomposed
X = torch.linspace(-2, 2, 6).reshape(2, 3)
INT8 = (0.5, 3, -128, 127, torch.int8)


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


def test_views_lie_in_the_memory_of_their_base() -> None:
    module = SpecPropPass()(graph_of(lambda _, x: x.relu().view(6) + 1, X)).graph_module  # type: ignore[union-attr]
    assert ReplaceViewCopyWithViewPass()(module).modified  # type: ignore[union-attr]
    (view,) = module.graph.find_nodes(op="call_function", target=memory.view)
    assert list(view.meta["spec"].shape) == [6]


def test_constants_of_a_program_are_computed() -> None:
    weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    manager = edge(lambda self, x: x + (self.weight * 2).relu(), X, weight=weight)
    expected = X + (weight * 2).relu()
    program = constant_prop_pass(manager.exported_program())
    assert called(program) == ["aten.add.Tensor"]
    assert len(program.constants) == 1
    assert program.state_dict == {}
    assert_close(program.module()(X), expected)
    assert_close(run(EdgeProgramManager(program), X), expected.detach())


def test_a_constant_output_is_a_copy_of_the_constant() -> None:
    program = constant_prop_pass(
        edge(lambda self, x: (x, self.weight.neg()), X, weight=nn.Parameter(X)).exported_program()
    )
    assert called(program) == ["aten.clone.default"]
    assert_close(program.module()(X), (X, -X))


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
    with pytest.raises(ValueError, match="Suspicious reinplace registration"):
        reinplace_pass(program, inplace_overrides={aten.add.Tensor: aten.sub_.Tensor})


def test_first_values_of_buffers_are_kept_in_any_case() -> None:
    def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count

    manager = edge(counts, X, count=nn.Buffer(torch.tensor([5.0])))
    for each in (manager, manager.transform([InitializedMutableBufferPass(["count"])])):
        assert_close(run(each, X), X + 6)


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
    program = quant_fusion_and_const_prop_pass(
        to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()
    )
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


def test_a_graph_is_the_same_text_after_passes_that_change_nothing() -> None:
    manager = edge(lambda _, x: x.relu(), X)
    after = manager.transform([RemoveNoopPass(), CSEPass(), ScalarToTensorPass()])
    assert program_text(after.exported_program()) == program_text(manager.exported_program())
