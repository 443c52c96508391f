"""ExecuTorch's passes under its module paths: what each makes of a graph, and that lowered programs still run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plugins.executorch.tests.edge_graphs import called, edge, graph_of, model, run
from torch import nn
from torch._export.verifier import SpecViolationError
from torch.export import Dim, ExportedProgram, export
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult
from torch.testing import assert_close

import delegraph
from delegraph.aot import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    exir_ops,
    to_edge,
)
from delegraph.errors import LoweringError, MissingOutVariant
from delegraph_executorch.exir import memory
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
    SpecPropPass,
    ToOutVarPass,
    dead_code_elimination_pass,
    make_alloc_node,
    propagate_dynamic_shape,
)
from delegraph_executorch.exir.passes.quant_fusion_pass import QuantFusionPass
from delegraph_executorch.exir.passes.quantization import pack_embedding_weight
from delegraph_executorch.exir.passes.sym_shape_eval_pass import (
    ConstraintBasedSymShapeEvalPass,
    HintBasedSymShapeEvalPass,
)
from delegraph_executorch.exir.verification.verifier import EXIREdgeDialectVerifier, get_aten_verifier

aten, quantized = exir_ops.edge.aten, exir_ops.edge.quantized_decomposed
X = torch.linspace(-2, 2, 6).reshape(2, 3)
INT8 = (0.5, 3, -128, 127, torch.int8)


# ---- passes of graphs ------------------------------------------------------------------------------


def test_dead_code_is_gone_from_bodies_too() -> None:
    module = graph_of(lambda _, x: torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.sigmoid(), (x,)), X)
    for _, body, _ in get_control_flow_submodules(module):
        with body.graph.inserting_before(body.graph.output_node()):
            body.graph.call_function(aten.neg.default, (next(iter(body.graph.nodes)),))
    assert dead_code_elimination_pass(module).modified
    assert not any("neg" in name for _, body, _ in get_control_flow_submodules(module) for name in called(body))
    assert not dead_code_elimination_pass(module).modified


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


# ---- passes of programs ----------------------------------------------------------------------------


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


def test_errors() -> None:
    with pytest.raises(InternalError, match="broken"):
        internal_assert(False, "broken")
    internal_assert(True, "fine")
    assert issubclass(ExportError, LoweringError)
