"""`ExportPass`: a graph traced anew, and what a pass says of its calls."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.fx import Graph, GraphModule
from torch.fx.passes.infra.pass_manager import PassManager
from torch.testing import assert_close

import delegraph
from delegraph.aot import (
    BackendDetails,
    CompileSpec,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    ExportPass,
    LoweringConfig,
    NodeMetadata,
    PassResult,
    PreprocessResult,
    ProxyValue,
    exir_ops,
    is_delegate_call,
    program_text,
    to_edge,
    to_edge_transform_and_lower,
)
from delegraph.errors import LoweringError, VerificationError
from delegraph.plugins.registry import PluginRegistry
from delegraph_partitioners import OperatorsPartitioner

aten = exir_ops.edge.aten
X = torch.linspace(-2, 2, 6).reshape(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu().sigmoid()


def edge(model: nn.Module, *args: Any, shapes: Any = None) -> EdgeProgramManager:
    return to_edge(export(model.eval(), args, dynamic_shapes=shapes))


def calls(program: ExportedProgram | GraphModule) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


class Blob(BackendDetails):
    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return PreprocessResult(b"blob")


class ReluToHardtanh(ExportPass):
    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        if op != aten.relu.default:
            return super().call_operator(op, args, kwargs, meta)
        return super().call_operator(aten.hardtanh.default, (args[0], 0.0, 1.0), {}, meta)


class SigmoidInSteps(ExportPass):
    """1 / (1 + exp(-x))"""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        if op != aten.sigmoid.default:
            return super().call_operator(op, args, kwargs, meta)
        power = super().call_operator(
            aten.exp.default, (super().call_operator(aten.neg.default, args, {}, meta),), {}, meta
        )
        one = super().call_operator(aten.full_like.default, (power, 1.0), {}, meta)
        total = super().call_operator(aten.add.Tensor, (power, one), {}, meta)
        return super().call_operator(aten.reciprocal.default, (total,), {}, meta)


class Drop(ExportPass):
    """Takes calls of an operator of one argument out of the graph."""

    def __init__(self, dropped: Any) -> None:
        super().__init__()
        self.dropped = dropped

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> Any:
        return args[0] if op == self.dropped else super().call_operator(op, args, kwargs, meta)


class Nothing(ExportPass):
    """Traces, and changes nothing."""


# ---- the trace -------------------------------------------------------------------------------------


def test_without_a_change_the_program_is_the_same_to_the_letter() -> None:
    manager = edge(Net(), X)
    assert program_text(manager.transform([Nothing()]).exported_program()) == program_text(manager.exported_program())


def test_the_module_that_was_given_stays_as_it_was() -> None:
    module = edge(Net(), X).exported_program().graph_module
    before = str(module.graph)
    result = ReluToHardtanh()(module)
    assert result is not None
    assert result.modified
    assert result.graph_module is not module
    assert (str(module.graph), "hardtanh" in str(result.graph_module.graph)) == (before, True)


def test_one_call_in_the_place_of_another() -> None:
    model = Net()
    manager = edge(model, X).transform([ReluToHardtanh()])
    assert "aten.hardtanh.default" in calls(manager.exported_program())
    expected = model.linear(X).clamp(0, 1).sigmoid()
    assert_close(manager.exported_program().module()(X), expected)


def test_several_calls_in_the_place_of_one_have_its_origin() -> None:
    model = Net()
    manager = edge(model, X)
    (sigmoid,) = manager.exported_program().graph.find_nodes(op="call_function", target=aten.sigmoid.default)
    program = manager.transform([SigmoidInSteps()]).exported_program()
    assert calls(program)[-5:] == [
        f"aten.{op}" for op in ("neg.default", "exp.default", "full_like.default", "add.Tensor", "reciprocal.default")
    ]
    for node in list(program.graph.nodes)[-6:-1]:
        assert node.meta["stack_trace"] == sigmoid.meta["stack_trace"]
        assert node.meta["nn_module_stack"] == sigmoid.meta["nn_module_stack"]
        assert node.meta.get("debug_handle") == sigmoid.meta.get("debug_handle")
    assert_close(program.module()(X), model(X))


def test_shapes_and_dtypes_behind_a_change_are_those_of_the_new_graph() -> None:
    class InHalf(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            if op == aten.sigmoid.default:
                half = super().call_operator(aten.slice_copy.Tensor, (args[0], 0, 0, 1), {}, meta)
                return super().call_operator(op, (half,), kwargs, meta)
            return super().call_operator(op, args, kwargs, meta)

    class Deep(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sigmoid().relu().exp()

    program = edge(Deep(), X).transform([InHalf()]).exported_program()
    (exp,) = program.graph.find_nodes(op="call_function", target=aten.exp.default)
    assert tuple(exp.meta["val"].shape) == (1, 3)


def test_a_call_is_gone_where_its_argument_stands_for_it() -> None:
    program = edge(Net(), X).transform([Drop(aten.relu.default)]).exported_program()
    assert "aten.relu.default" not in calls(program)


def test_a_lowered_program_runs_after_it() -> None:
    model = Net()
    config = LoweringConfig(
        transform_passes=[SigmoidInSteps()], executorch=ExecutorchBackendConfig(passes=[ReluToHardtanh()])
    )
    run = delegraph.load(bytes(delegraph.lower(model, (X,), config=config)))
    assert_close(torch.from_numpy(run(X.numpy())), model.linear(X).clamp(0, 1).sigmoid(), rtol=1e-5, atol=1e-6)


def test_a_constant_tensor_becomes_part_of_the_graph() -> None:
    seen: list[Any] = []
    ones = torch.ones(3)

    class Shifted(ExportPass):
        def on_attr(self, attr: ProxyValue) -> None:
            seen.append(attr.data)

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            if op == aten.relu.default:
                return super().call_operator(aten.add.Tensor, (args[0], ones), {}, meta)
            return super().call_operator(op, args, kwargs, meta)

    model = Net()
    program = edge(model, X).transform([Shifted()]).exported_program()
    assert [list(tensor) for tensor in seen] == [[1, 1, 1]]
    assert_close(program.module()(X), (model.linear(X) + 1).sigmoid())


def test_results_of_a_call_with_several_are_handed_to_call_getitem() -> None:
    keys: list[int] = []

    class Items(ExportPass):
        def call_getitem(self, value: ProxyValue, key: int, meta: NodeMetadata) -> ProxyValue:
            keys.append(key)
            return super().call_getitem(value, key, meta)

    class Top(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values, indices = x.topk(2)
            return values * indices

    Items()(edge(Top(), X).exported_program().graph_module)
    assert keys == [0, 1]


def test_input_named_like_a_builtin_keeps_its_name() -> None:
    class Builtin(nn.Module):
        def forward(self, input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return input - other.relu()

    program = edge(Builtin(), X, X.abs()).transform([Nothing()]).exported_program()
    assert program.graph_signature.user_inputs == ("input", "other")
    assert_close(program.module()(X, -X), X - (-X).relu())


# ---- symbolic sizes --------------------------------------------------------------------------------


class Flat(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.size(0) * x.size(1)).relu()


class Picked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x.nonzero().squeeze(1)].relu()


N: Any = ({0: Dim("n", min=2, max=8)},)


def test_symbolic_sizes_stay_symbolic_and_are_computed_by_call_sym() -> None:
    symbolic: list[Any] = []

    class Sizes(ExportPass):
        def call_sym(self, target: Any, args: Any, meta: NodeMetadata) -> ProxyValue:
            symbolic.append(target)
            return super().call_sym(target, args, meta)

    manager = edge(Flat(), X, shapes=N).transform([Sizes()])
    assert operator.mul in symbolic
    x = torch.randn(5, 3)
    run = delegraph.load(bytes(manager.to_executorch(ExecutorchBackendConfig(check_kernels=False)).buffer))
    assert_close(torch.from_numpy(run(x.numpy())), x.reshape(15).relu())


def test_sizes_that_a_call_makes_up_are_the_same_symbols_afterwards() -> None:
    program = export(Picked(), (torch.tensor([0.0, 1.0, 2.0]),))
    manager = to_edge(program)
    traced = manager.transform([Nothing()])
    assert program_text(traced.exported_program()) == program_text(manager.exported_program())
    run = delegraph.load(bytes(traced.to_executorch().buffer))
    assert run(torch.tensor([3.0, 0.0, 4.0]).numpy()).tolist() == [3, 4]


class Filled(nn.Module):
    def forward(self, n: torch.Tensor) -> torch.Tensor:
        size = n.item()
        torch._check(size >= 2)
        torch._check(size <= 100)
        return torch.ones(int(size))


def test_a_number_read_from_a_tensor_keeps_its_bound() -> None:
    """torch remembers on the tensor what `item()` gave in the trace before, a symbol that no bound is known of."""
    manager = to_edge(export(Filled(), (torch.tensor(10),), strict=True))
    (n,) = manager.exported_program().graph.find_nodes(op="placeholder")
    mode = n.meta["val"].fake_mode
    with mode, mode.shape_env.ignore_fresh_unbacked_symbols():
        n.meta["val"].item()
    run = delegraph.load(bytes(manager.transform([Nothing()]).to_executorch().buffer))
    assert run(torch.tensor(3).numpy()).tolist() == [1, 1, 1]


def test_a_symbol_has_no_value_ahead_of_time() -> None:
    program = edge(Flat(), X, shapes=N).exported_program()
    size = next(n.meta["val"] for n in program.graph.nodes if isinstance(n.meta.get("val"), torch.SymInt))
    value = ProxyValue(size, Graph().placeholder("x"))
    for use, message in (
        (bool, "boolean context"),
        (int, "converted to int"),
        (float, "converted to float"),
        (operator.index, "index context"),
    ):
        with pytest.raises(LoweringError, match=message):
            use(value)
    assert (int(ProxyValue(3, value.node)), bool(ProxyValue(False, value.node)), [1, 2][ProxyValue(1, value.node)]) == (
        3,
        False,
        2,
    )


class Collapses(ExportPass):
    def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
        proxy = super().placeholder(name, arg, meta)
        proxy.node.meta["val"] = torch.empty(2, 3, device="meta")
        return proxy


def test_an_input_that_loses_its_symbols_is_refused_unless_meant() -> None:
    class Meant(Collapses):
        def should_preserve_symbolic_input_metadata(self) -> bool:
            return False

    module = edge(Flat(), X, shapes=N).exported_program().graph_module
    with pytest.raises(
        LoweringError, match="Input at position 0 did not preserve symbolic metadata: its sizes were 0: s"
    ):
        Collapses()(module)
    result = Meant()(module)
    assert result is not None
    assert result.graph_module.graph.find_nodes(op="placeholder")[0].meta["val"].shape == (2, 3)


# ---- bodies and delegates --------------------------------------------------------------------------


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: x.sigmoid(), (x,))  # type: ignore[no-any-return]


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.map import map as map_rows

        return map_rows(lambda row, y: row.relu() + y, x, torch.ones(3))  # type: ignore[no-any-return]


class Sums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.scan import scan

        _, sums = scan(lambda carry, row: (carry + row.relu(), (carry + row).relu()), torch.zeros(3), x)
        return sums  # type: ignore[no-any-return]


class Loops(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.relu() * 2), (torch.tensor(0), x))[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("model", [Branches(), Rows(), Sums(), Loops()], ids=lambda model: type(model).__name__)
def test_bodies_of_control_flow_are_traced_too(model: nn.Module) -> None:
    manager = edge(model, X)
    program = manager.transform([ReluToHardtanh()]).exported_program()
    assert "hardtanh" in program_text(program)
    assert "aten.relu" not in program_text(program)
    small = (X + 1) / 16  # a hardtanh to 1 is a relu of what stays below 1
    assert_close(program.module()(small), model(small))
    run = delegraph.load(bytes(manager.transform([ReluToHardtanh()]).to_executorch().buffer))
    assert_close(torch.from_numpy(run(small.numpy())), model(small))


def test_delegates_are_handed_to_call_delegate_and_stay_whole() -> None:
    plugins = PluginRegistry.discover()
    plugins.register("lowerings", "Counts", Blob)
    lowered: list[Any] = []

    class Delegates(ReluToHardtanh):
        def call_delegate(self, lowered_module: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            lowered.append(lowered_module.backend_id)
            return super().call_delegate(lowered_module, args, kwargs, meta)

    model = Net()
    manager = to_edge_transform_and_lower(
        export(model, (X,)), partitioner=[OperatorsPartitioner("Counts", ["aten::sigmoid"])], plugins=plugins
    )
    program = manager.transform([Delegates()]).exported_program()
    assert lowered == ["Counts"]
    assert [is_delegate_call(node) for node in program.graph.nodes].count(True) == 1
    assert "aten.hardtanh.default" in calls(program)
    assert_close(program.module()(X), model.linear(X).clamp(0, 1).sigmoid())


# ---- what is accepted where passes are -------------------------------------------------------------


class DoubleConstants(ExportedProgramPassBase):
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        for name, held in exported_program.state_dict.items():
            exported_program.state_dict[name] = nn.Parameter(held * 2)
        return ExportedProgramPassResult(exported_program, True)


def in_place(module: GraphModule) -> None:
    for node in module.graph.find_nodes(op="call_function", target=aten.relu.default):
        node.target = aten.tanh.default


def with_result(module: GraphModule) -> PassResult:
    in_place(module)
    return PassResult(module, True)


class InPlace(ExportPass):
    def call(self, graph_module: GraphModule) -> PassResult:
        return with_result(graph_module)


def managed(*passes: Any) -> PassManager:
    return PassManager([with_result if one is in_place else one for one in passes])


@pytest.mark.parametrize(
    "passes",
    [
        [in_place],
        [with_result],
        [InPlace()],
        [managed(with_result, Nothing())],
        managed(with_result),
        {"forward": [Nothing(), in_place]},
    ],
    ids=["function", "PassResult", "ExportPass", "manager in a list", "manager", "by method"],
)
def test_every_kind_of_pass_is_accepted_everywhere(passes: Any) -> None:
    exported = export(Net(), (X,))
    unchecked = ExecutorchBackendConfig(check_kernels=False)
    for program in (
        to_edge(exported).transform(passes).exported_program(),
        to_edge_transform_and_lower(exported, transform_passes=passes).exported_program(),
        delegraph.lower(
            Net(), (X,), config=LoweringConfig(transform_passes=passes, executorch=unchecked)
        ).edge.exported_program(),
    ):
        assert "aten.tanh.default" in calls(program)
    config = ExecutorchBackendConfig(passes=passes, check_kernels=False)
    assert b"aten::tanh" in to_edge(exported).to_executorch(config).buffer


def test_a_pass_of_programs_changes_weights_of_its_copy_alone() -> None:
    model = Net()
    manager = edge(model, X)
    program = manager.transform([DoubleConstants()]).exported_program()
    expected = (model.linear(X) * 2).relu().sigmoid()
    assert_close(program.module()(X), expected)
    assert_close(manager.exported_program().module()(X), model(X))


def test_requires_and_ensures_are_called_around_a_pass() -> None:
    order: list[str] = []

    class OfGraph(Nothing):
        def requires(self, graph_module: GraphModule) -> None:
            order.append("requires")

        def ensures(self, graph_module: GraphModule) -> None:
            order.append("ensures")

    class OfProgram(ExportedProgramPassBase):
        def requires(self, exported_program: ExportedProgram) -> None:
            order.append("requires")

        def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
            order.append("call")
            return ExportedProgramPassResult(exported_program, False)

        def ensures(self, exported_program: ExportedProgram) -> None:
            raise LoweringError("not as promised")

    manager = edge(Net(), X)
    manager.transform([OfGraph()])
    with pytest.raises(LoweringError, match="not as promised"):
        manager.transform([OfProgram()])
    assert order == ["requires", "ensures", "requires", "call"]


# ---- errors ----------------------------------------------------------------------------------------


def test_a_pass_that_breaks_the_dialect_is_refused() -> None:
    class Views(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            return super().call_operator(
                torch.ops.aten.view.default if op == aten.relu.default else op,
                (args[0], [2, 3]) if op == aten.relu.default else args,
                kwargs,
                meta,
            )

    with pytest.raises(VerificationError, match="returns a view"):
        edge(Net(), X).transform([Views()])


def test_what_fails_in_the_trace_is_named_with_its_line() -> None:
    class Wrong(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            if op == aten.relu.default:
                return super().call_operator(aten.mm.default, (args[0], args[0]), {}, meta)
            return super().call_operator(op, args, kwargs, meta)

    with pytest.raises(LoweringError, match=r"pass Wrong: .*\n  node: aten_relu_default\n  at: .*test_export_pass.py"):
        edge(Net(), X).transform([Wrong()])


def test_data_of_a_value_is_no_argument() -> None:
    class ByData(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            return super().call_operator(op, tuple(getattr(arg, "data", arg) for arg in args), kwargs, meta)

    with pytest.raises(LoweringError, match="hand the `ProxyValue` on, not its `data`"):
        edge(Net(), X).transform([ByData()])


def test_metadata_of_origin_is_handed_on_and_not_made_up() -> None:
    meta = NodeMetadata({"val": 1, "debug_handle": 7})
    meta["mine"] = 3
    assert (meta["mine"], "mine" in meta, "mine" in meta.copy(), meta["debug_handle"]) == (3, True, True, 7)
    with pytest.raises(LoweringError, match="could not override node key: debug_handle"):
        meta["debug_handle"] = 8


@pytest.mark.parametrize("kind", ["call_module", "call_method", "call_function"])
def test_what_is_not_an_operator_is_refused(kind: str) -> None:
    def add(module: GraphModule) -> None:
        module.add_module("inner", nn.ReLU())
        target: Any = {"call_module": "inner", "call_method": "relu", "call_function": torch.relu}[kind]
        output = module.graph.output_node()
        with module.graph.inserting_before(output):
            module.graph.create_node(kind, target, (output.args[0][0],))  # type: ignore[index]

    module = edge(Net(), X).exported_program().graph_module
    add(module)
    with pytest.raises(LoweringError, match=r"is not supported|Unsupported target type"):
        Nothing()(module)


def test_an_input_without_a_value_cannot_be_traced() -> None:
    graph = Graph()
    graph.output((graph.placeholder("x"),))
    with pytest.raises(LoweringError, match='cannot trace anew: x has no meta\\["val"\\]'):
        Nothing()(GraphModule(nn.Module(), graph))


def test_a_constant_of_the_graph_has_no_proxy() -> None:
    node = Graph().placeholder("x")
    with pytest.raises(LoweringError, match="no proxy"):
        _ = ProxyValue(1, node).proxy
    with pytest.raises(LoweringError, match="int is not a tensor"):
        ProxyValue(1, node).to_tensor()


def adds_an_input(module: GraphModule) -> None:
    with module.graph.inserting_before(next(iter(module.graph.nodes))):
        node = module.graph.placeholder("more")
    node.meta["val"] = torch.empty(1)


def adds_an_output(module: GraphModule) -> None:
    output = module.graph.output_node()
    output.args = ((*output.args[0], output.args[0][0]),)  # type: ignore[misc,index]


@pytest.mark.parametrize(
    ("changes", "what"), [(adds_an_input, "a new input 'more'"), (adds_an_output, "2 outputs for 1")]
)
def test_a_pass_of_graphs_cannot_change_what_a_program_takes_and_gives(changes: Any, what: str) -> None:
    with pytest.raises(LoweringError, match=f"pass {changes.__name__} leaves {what}; .*ExportedProgramPassBase"):
        edge(Net(), X).transform([changes])


def test_inputs_that_a_pass_renames_are_told_by_their_place() -> None:
    class Renames(ExportPass):
        def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
            return super().placeholder(f"renamed_{name}", arg, meta)

    model = Net()
    program = edge(model, X).transform([Renames()]).exported_program()
    assert program.graph_signature.user_inputs == ("renamed_x",)
    assert_close(program.module()(X), model(X))


def test_sizes_are_arguments_of_calls() -> None:
    sizes: list[Any] = []

    class Looks(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
            if op is not torch.ops.aten.sym_size.int and not sizes:
                sizes.extend(self.call_size_operator_all(args[0], meta))
            return super().call_operator(op, args, kwargs, meta)

    Looks()(edge(Flat(), X, shapes=N).exported_program().graph_module)
    assert isinstance(sizes[0], ProxyValue) and sizes[0].node.target == torch.ops.aten.sym_size.int
    assert sizes[1:] == list(X.shape[1:])
