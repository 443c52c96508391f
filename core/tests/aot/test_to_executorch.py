"""The last stage as its users see it: the manager, the configuration, the errors."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.named_data_store import NamedDataStore
from delegraph.aot.delegation.partition import TAG, tag_constant_data
from delegraph.aot.emission.planners import greedy
from delegraph.aot.lower import EdgeProgramManager, lower, to_edge
from delegraph.errors import LoweringError, MissingKernel, MissingOutVariant
from delegraph.interfaces import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    KernelLibrary,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.plugins.discovery import Offer
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.contract import CONTRACT_KEY
from delegraph.program.debug_data import DEBUG_DATA_KEY
from delegraph.program.flat_tensor import deserialize_flat_tensor
from delegraph.program.schema import DelegateCall, Tensor, TensorDataLocation
from delegraph.program.weights_origin import PROGRAM_KEY
from delegraph.runtime.runtime import Runtime


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.weight


class Scale3(Scale):
    def forward(self, x):
        return (x * self.weight).relu() * 3


# ---- programs --------------------------------------------------------------------------------------


def test_methods_stand_sorted_and_share_their_weights(lower_model) -> None:
    first, second = Scale(), Scale3()
    second.weight = nn.Parameter(first.weight.detach().clone())
    manager = lower_model({"b": first, "a": second}, (torch.randn(4),), constant_methods={"version": (1, [2.5, "x"])})
    assert manager.methods == {"a", "b"}
    assert manager.config_methods == {"version"}
    assert len(manager.executorch_program.constants) == 2


def test_constant_methods_give_their_values(lower_model) -> None:
    values = {"n": 3, "flag": True, "pi": 3.25, "name": "m", "table": torch.arange(4), "many": (1, [2.0])}
    program = Runtime.get().load_program(lower_model(Scale(), (torch.randn(4),), constant_methods=values).buffer)
    got = {name: list(program.load_method(name).execute([])) for name in values}
    assert [got[name] for name in ("n", "flag", "pi", "name", "many")] == [[3], [True], [3.25], ["m"], [1, 2.0]]
    assert torch.as_tensor(got["table"][0]).tolist() == [0, 1, 2, 3]


def test_one_name_for_two_methods_is_refused(lower_model) -> None:
    with pytest.raises(LoweringError, match="forward: a method and a constant method of one name"):
        lower_model(Scale(), (torch.randn(4),), constant_methods={"forward": 1})
    with pytest.raises(LoweringError, match="no method to lower"):
        EdgeProgramManager({}).to_executorch()


@pytest.mark.parametrize("name", [3, "", None])
def test_a_methods_name_is_a_text(name: Any) -> None:
    model, args = Scale(), (torch.randn(4),)
    with pytest.raises(LoweringError, match=f"a method's name is a text, not {name!r}"):
        lower({name: model}, {name: args})
    with pytest.raises(LoweringError, match="a method's name is a text"):
        to_edge({name: torch.export.export(model, args)})


def test_weights_are_not_copied(lower_model) -> None:
    model = Scale()
    manager = lower_model(model, (torch.randn(4),))
    view = torch.frombuffer(manager.executorch_program.constants[1], dtype=torch.float32)
    assert view.data_ptr() == model.weight.data_ptr()


def test_the_callers_program_is_not_changed() -> None:
    class Model(Scale):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(4))

        def forward(self, x):
            self.state.add_(x)
            return x * self.weight.exp() + self.state.view(2, 2).view(4)

    edge = to_edge(torch.export.export(Model(), (torch.randn(4),)))
    program = edge.exported_program()
    before = (str(program), {k: v.clone() for k, v in program.state_dict.items()})
    edge.to_executorch(ExecutorchBackendConfig(check_kernels=False, passes=[lambda module: None]))
    assert str(program) == before[0]
    assert all(torch.equal(program.state_dict[k], v) for k, v in before[1].items())


def test_it_can_be_written_in_every_way(lower_model, tmp_path: Path) -> None:
    manager = lower_model(Scale(), (torch.randn(4),))
    manager.save(tmp_path / "m.pte")
    stream = io.BytesIO()
    manager.write_to_file(stream)
    assert (tmp_path / "m.pte").read_bytes() == stream.getvalue() == manager.buffer
    assert [path.name for path in tmp_path.iterdir()] == ["m.pte"]


def test_a_repr_is_short_whatever_the_weights() -> None:
    config = ExecutorchBackendConfig(check_kernels=False, external_constants=lambda node: "weights")
    lowered = lower(Scale3().eval(), (torch.ones(4),), config=config, plugins=registry_with())
    named_data = lowered.program.executorch_program.named_data
    nbytes = sum(len(entry.data) for entry in named_data.values())
    assert named_data.keys() == {CONTRACT_KEY, DEBUG_DATA_KEY, PROGRAM_KEY}
    assert repr(lowered) == (
        "Lowered(LoweringReport(forward: 0 nodes in 0 delegates, 3 nodes left to kernels), ExecutorchProgramManager("
        f"Program('forward'; 0 bytes of constants, 0 of mutable data, 0 of delegates, {nbytes} of named data), "
        "weights.ptd: FlatTensor(1 keys; 16 bytes)))"
    )


def test_equal_models_give_equal_bytes(lower_model) -> None:
    model = Scale3()
    assert lower_model(model, (torch.ones(4),)).buffer == lower_model(model, (torch.ones(4),)).buffer


def test_the_edge_program_is_kept(lower_model) -> None:
    manager = lower_model(Scale(), (torch.randn(4),))
    assert isinstance(manager.exported_program(), torch.export.ExportedProgram)
    with pytest.raises(LoweringError, match="no edge program 'other'; there are forward"):
        manager.exported_program("other")


# ---- options ---------------------------------------------------------------------------------------


def external(manager: Any) -> list[str]:
    values = manager.executorch_program.execution_plan[0].values
    extras = [v.extra_tensor_info for v in values if isinstance(v, Tensor) and v.extra_tensor_info is not None]
    return [e.fully_qualified_name for e in extras if e.location is TensorDataLocation.EXTERNAL]


def test_weights_can_live_in_a_ptd(lower_model, tmp_path: Path) -> None:
    model = Scale()
    manager = lower_model(model, (torch.randn(4),), external_constants=True)
    assert external(manager) == ["weight"]
    manager.save(tmp_path / "m.pte")
    stored = deserialize_flat_tensor((tmp_path / "_default_external_constant.ptd").read_bytes())
    assert bytes(stored.named_data["weight"].data) == model.weight.detach().numpy().tobytes()
    assert stored.named_data["weight"].tensor_layout.sizes == (4,)
    program = Runtime.get().load_program(tmp_path / "m.pte", data_path=tmp_path / "_default_external_constant.ptd")
    (result,) = program.load_method("forward").execute([torch.ones(4).numpy()])
    assert torch.equal(torch.as_tensor(result), model.weight.detach())


def test_a_function_says_which_weights_go_where(lower_model, tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4, bias=False))
    manager = lower_model(
        model, (torch.randn(2, 4),), external_constants=lambda node: "norm" if "p_0_bias" in node.name else None
    )
    manager.write_tensor_data_to_file(tmp_path / "data")
    assert external(manager) == ["0.bias"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["norm.ptd"]


def test_stack_traces_are_kept_on_demand(lower_model) -> None:
    chain = lower_model(Scale(), (torch.randn(4),)).executorch_program.execution_plan[0].chains[0]
    assert chain.stacktrace is None
    kept = lower_model(Scale(), (torch.randn(4),), emit_stacktrace=True).executorch_program.execution_plan[0].chains[0]
    (frames,) = kept.stacktrace
    assert frames[-1].filename == __file__
    assert frames[-1].context == "return x * self.weight"


def test_every_instruction_has_its_debug_handle(lower_model) -> None:
    manager = lower_model(Scale3(), (torch.randn(4),))
    by_handle = {n.meta.get("debug_handle"): n for n in manager.exported_program().graph.nodes}
    nodes = [by_handle[handle].target for _, handle in sorted(manager.debug_handle_map["forward"].items())]
    aten = torch.ops.aten
    assert nodes == [aten.mul.Tensor, aten.relu.default, aten.mul.Scalar]


def test_alignments_reach_the_file(lower_model) -> None:
    model, args = Scale(), (torch.randn(4),)
    default = lower_model(model, args).buffer
    wide = lower_model(model, args, segment_alignment=4096, constant_tensor_alignment=64).buffer
    assert len(wide) > 4096 > len(default)


def test_passes_go_by_method(lower_model) -> None:
    def relu_to_neg(module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.target == torch.ops.aten.relu.default:
                node.target = torch.ops.aten.neg.default

    manager = lower_model({"a": Scale3(), "b": Scale3()}, (torch.randn(4),), passes={"b": [relu_to_neg]})
    a, b = ({str(op) for op in plan.operators} for plan in manager.executorch_program.execution_plan)
    assert "aten::relu.out" in a
    assert "aten::neg.out" in b


# ---- kernels ---------------------------------------------------------------------------------------


def registry_with(*operators: str) -> PluginRegistry:
    library = KernelLibrary("small")
    for operator in operators:
        library.kernel(operator)(lambda *args: None)
    registry = PluginRegistry()
    registry.register("kernels", "small", library)
    registry.register("memory_planners", "greedy", greedy)
    return registry


def test_operators_without_kernel_are_refused_with_node_line_and_remedy() -> None:
    edge = to_edge(torch.export.export(Scale3(), (torch.randn(4),)))
    programs = {"forward": edge.exported_program()}
    with pytest.raises(MissingKernel) as caught:
        EdgeProgramManager(programs, plugins=registry_with("aten::mul.out")).to_executorch()
    text = str(caught.value)
    assert text.startswith("2 operators without a kernel in the kernel libraries (runtime, small):")
    assert "- aten::relu.out\n    forward: aten_relu" in text
    assert "test_to_executorch.py" in text
    assert "return (x * self.weight).relu() * 3" in text
    assert "check_kernels=False" in text
    EdgeProgramManager(programs, plugins=registry_with()).to_executorch(ExecutorchBackendConfig(check_kernels=False))
    all_of_them = registry_with("aten::mul.out", "aten::mul.Scalar_out", "aten::relu.out")
    EdgeProgramManager(programs, plugins=all_of_them).to_executorch()


def test_the_libraries_of_the_device_are_those_that_are_named() -> None:
    programs = {"forward": to_edge(torch.export.export(nn.ReLU(), (torch.randn(3),))).exported_program()}
    has, has_not = KernelLibrary("has"), KernelLibrary("has_not")
    has.kernel("aten::relu.out")(lambda *args: None)
    EdgeProgramManager(programs, plugins=registry_with()).to_executorch(ExecutorchBackendConfig(kernels=[has]))
    has_relu = EdgeProgramManager(programs, plugins=registry_with("aten::relu.out"))
    with pytest.raises(MissingKernel, match=r"kernel libraries \(has_not, runtime\)"):
        has_relu.to_executorch(ExecutorchBackendConfig(kernels=[has_not]))


def test_a_missing_kernel_of_an_installed_library_that_waits_to_be_asked_is_offered() -> None:
    def library(name: str, *operators: str, on_request: bool = False) -> KernelLibrary:
        made = KernelLibrary(name)
        made.on_request = on_request
        for operator in operators:
            made.kernel(operator)(lambda context, *args: lambda: None)
        return made

    plugins = registry_with()
    plugins.register("kernels", "always", library("always"))
    plugins.register("kernels", "other", library("other", "aten::tan.out", on_request=True))
    plugins.register("kernels", "some", library("some", "aten::sin.out", on_request=True))
    plugins.register("kernels", "each", library("each", "aten::sin.out", "aten::cos.out", on_request=True))

    class Waves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() + x.cos() - x.cos()

    edge = to_edge(torch.export.export(Waves(), (torch.randn(2),)))
    given = ExecutorchBackendConfig(kernels=[library("given", "aten::sub.out", "aten::add.out")])
    with pytest.raises(MissingKernel) as caught:
        EdgeProgramManager({"forward": edge.exported_program()}, plugins=plugins).to_executorch(given)
    text = str(caught.value)
    assert "kernel libraries (given, runtime)" in text
    assert "library 'each', which is only used on request, has all of them" in text
    assert "library 'some', which is only used on request, has aten::sin.out: name it" in text
    assert "ExecutorchBackendConfig(kernels=[…, 'some']) and in load(kernels=[…, 'some'])" in text
    assert "'other'" not in text
    assert "'always'" not in text


def test_a_missing_kernel_tells_which_libraries_could_not_be_loaded() -> None:
    offers = [Offer("delegraph.kernels", "fast", "fast:library", who, "1.0") for who in ("acme", "rival")]
    plugins = PluginRegistry([*offers, Offer("delegraph.kernels", "gone", "no_such_module:library", "gone", "1.0")])
    plugins.register("memory_planners", "greedy", greedy)
    edge = to_edge(torch.export.export(nn.ReLU(), (torch.randn(3),)))
    with pytest.raises(MissingKernel) as caught:
        EdgeProgramManager({"forward": edge.exported_program()}, plugins=plugins).to_executorch()
    text = str(caught.value)
    assert "\n  could not be loaded: 2 distributions offer kernels:fast: acme 1.0" in text
    assert "\n  could not be loaded: cannot load plug-in kernels:gone of gone 1.0" in text
    assert text.index("rival 1.0") < text.index("\n  node: ")


def test_a_number_that_changes_from_call_to_call_is_refused() -> None:
    class Times(nn.Module):
        def forward(self, x, k):
            return x * k

    args = torch.ones(3), 3
    with pytest.raises(LoweringError, match=r"input 'k' is a number .* takes those in tensors alone(.|\n)*k\.item\(\)"):
        lower(Times(), args, dynamic_shapes=(None, torch.export.Dim.DYNAMIC))
    lower(Times(), args)


def test_weights_without_data_are_refused(lower_model) -> None:
    model = Scale()
    exported = torch.export.export(model, (torch.randn(4),))
    exported.state_dict["weight"] = nn.Parameter(torch.empty(4, device="meta"))
    with pytest.raises(LoweringError, match=r"a weight of shape \(4,\) has no data"):
        to_edge(exported).to_executorch(ExecutorchBackendConfig(check_kernels=False))


def test_missing_out_variants_in_bodies_of_control_flow_are_told(lower_model) -> None:
    with torch.library._scoped_library("delegraph_test_body", "DEF") as library:
        library.define("op(Tensor x) -> Tensor")
        library.define("op.out(Tensor x, int unlike, *, Tensor(a!) out) -> Tensor(a!)")
        library.impl("op", torch.empty_like, "Meta")

        class Model(nn.Module):
            def forward(self, x):
                op = torch.ops.delegraph_test_body.op
                return torch.cond(x.sum() > 0, lambda x: op(x) + 1, lambda x: op(x) - 1, (x,))

        with pytest.raises(MissingOutVariant) as caught:
            lower_model(Model(), (torch.randn(4),))
    assert str(caught.value).startswith("1 operator cannot run on planned memory")
    assert str(caught.value).count("op_default at") == 2


# ---- delegates -------------------------------------------------------------------------------------


class DoublerOfFinished(BackendDetails):
    """Its blob is the text "blob"; it shares a blob under a key."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        store = NamedDataStore()
        store.add_named_data("shared", b"weights", alignment=32)
        store.add_named_data("far", b"other", external_tag="side")
        return PreprocessResult(b"blob", {7: [1, 2]}, store.get_named_data_store_output())


class TakesRelu(Partitioner):
    def partition(self, exported_program):
        for node in exported_program.graph.nodes:
            if node.target == torch.ops.aten.relu.default:
                node.meta[TAG] = "relu"
        tag_constant_data(exported_program)
        return PartitionResult(
            exported_program, {"relu": DelegationSpec("DoublerOfFinished", [CompileSpec("k", b"v")])}
        )


def test_a_backend_says_what_it_compiles_a_copy_of() -> None:
    class DoublesItsWeights(BackendDetails):
        @classmethod
        def copy_exported_program_for_preprocess(cls, edge_program, compile_specs):
            if not compile_specs:
                raise ValueError("no specs")
            return copy.deepcopy(edge_program)

        @staticmethod
        def preprocess(edge_program, compile_specs):
            for weight in edge_program.state_dict.values():
                weight.data *= 2
            return PreprocessResult(str(weight.detach().item()).encode())

    class Takes(Partitioner):
        def __init__(self, *specs):
            self.specs = specs

        def partition(self, exported_program):
            for node in exported_program.graph.nodes:
                if node.op == "call_function":
                    node.meta[TAG] = "all"
            tag_constant_data(exported_program)
            return PartitionResult(exported_program, {"all": DelegationSpec("DoublesItsWeights", self.specs)})

    registry = registry_with()
    registry.register("lowerings", "DoublesItsWeights", DoublesItsWeights)
    model = torch.nn.PReLU(1, 0.5)
    edge = to_edge(torch.export.export(model, (torch.randn(4),)), plugins=registry)
    lowered = edge.to_backend(Takes(CompileSpec("k", b"v")))
    (module,) = (m for m in lowered.exported_program().graph_module.children() if hasattr(m, "processed_bytes"))
    assert (module.processed_bytes, model.weight.detach().item()) == (b"1.0", 0.5)
    with pytest.raises(LoweringError, match="its copy for preprocess raised ValueError: no specs"):
        edge.to_backend(Takes())


def test_a_delegate_call_has_its_blob_specs_data_and_maps() -> None:
    registry = registry_with()
    registry.register("lowerings", "DoublerOfFinished", DoublerOfFinished)
    exported = torch.export.export(Scale3(), (torch.randn(4),))
    edge = to_edge(exported, plugins=registry).to_backend(TakesRelu())
    manager = edge.to_executorch(ExecutorchBackendConfig(check_kernels=False))
    program = manager.executorch_program
    (plan,) = program.execution_plan
    (delegate,) = plan.delegates
    assert (delegate.id, bytes(program.delegate_data[delegate.processed])) == ("DoublerOfFinished", b"blob")
    assert CompileSpec("k", b"v") in delegate.compile_specs
    assert (bytes(program.named_data["shared"].data), program.named_data["shared"].alignment) == (b"weights", 32)
    assert list(manager.tensor_data["side"].named_data) == ["far"]
    (step,) = [i for i, call in enumerate(plan.chains[0].instructions) if isinstance(call, DelegateCall)]
    first, last = plan.chains[0].instructions[step - 1], plan.chains[0].instructions[step + 1]
    assert plan.chains[0].instructions[step].args == (first.args[-1], last.args[0])
    assert manager.delegate_map["forward"][step] == {"name": "DoublerOfFinished", "delegate_map": {7: [1, 2]}}
