"""Names that are ExecuTorch's own: the source of its wheel, on our graphs, managers and partitioners."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from plugins.executorch.tests.edge_graphs import called, edge, graph_of, model
from plugins.executorch.tests.test_names import LISTED
from plugins.executorch.tests.test_passes import INT8, X, dequantized, requantized
from plugins.executorch.tests.upstream.results import WHEEL, read_reasons
from torch import nn
from torch.export import export
from torch.testing import assert_close

import delegraph
from delegraph.aot import EdgeCompileConfig, Partitioner
from delegraph_executorch.exir import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from delegraph_executorch.exir.backend.partitioner import DelegationSpec
from delegraph_executorch.exir.backend.utils import tag_constant_data
from delegraph_executorch.exir.lowered_backend_module import get_lowered_backend_modules
from delegraph_executorch.exir.passes import SpecPropPass

pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

UNCHECKED = EdgeCompileConfig(_check_ir_validity=False)


def own(path: str) -> Any:
    """A module of the wheel under our name."""
    return import_module(f"delegraph_executorch.{path}")


def test_its_classes_are_made_of_ours() -> None:
    partitioners = own("exir.backend.canonical_partitioners.config_partitioner")
    assert issubclass(partitioners.ConfigerationBasedPartitioner, Partitioner)
    assert Path(partitioners.__file__).parts[-5] == "executorch"


def test_a_module_in_a_package_of_its_own_is_on_ours_too() -> None:
    module = own("exir.dialects.edge.arg.type")
    assert (module.__name__, own("exir.dialects.edge.arg").__path__) == (
        "delegraph_executorch.exir.dialects.edge.arg.type",
        [],
    )


def test_every_name_that_is_listed_as_the_wheels_is_there() -> None:
    """But what of it asks for more than the wheel."""
    asks_for_more = ("executorch.devtools.visualization",)  # model_explorer
    for listed, reason in read_reasons([LISTED]).items():
        if reason.kind == WHEEL and not listed.startswith(asks_for_more):
            module, _, name = listed.removeprefix("executorch.").partition(":")
            assert hasattr(own(module), name or "__file__"), listed


def test_a_path_that_the_wheel_has_not() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"delegraph_executorch\.exir\.nothing"):
        own("exir.nothing")


def test_passes() -> None:
    module = graph_of(lambda _, x: x + torch.full((3,), 2.0), X)
    own("exir.passes").ToDevicePass("meta")(module)
    assert {node.kwargs["device"] for node in module.graph.nodes if "device" in node.kwargs} <= {torch.device("meta")}


def test_weights_are_tagged_for_files_of_their_own() -> None:
    tags = own("exir.passes.external_constants_pass")
    program = edge(lambda self, x: self.linear(x), X, linear=nn.Linear(3, 3)).exported_program()
    module = SpecPropPass()(program.graph_module).graph_module  # type: ignore[union-attr]
    SpecPropPass().update_placeholder_tensor_specs(program, module)
    assert tags.external_constants_pass(module).modified
    written = [node.meta.get("constant_tag") for node in module.graph.find_nodes(op="placeholder")]
    assert written == ["_default_external_constant"] * 2 + [None]
    unlifted = export(model(lambda self, x: self.linear(x), linear=nn.Linear(3, 3)), (X,)).module()
    assert tags.delegate_external_constants_pass_unlifted(unlifted, lambda node: "file").modified


# ---- quantized inputs and outputs ------------------------------------------------------------------


def quantized_inside() -> EdgeProgramManager:
    def net(_: Any, x: torch.Tensor) -> torch.Tensor:
        return dequantized(requantized(dequantized(requantized(x)).relu()))

    return to_edge(export(model(net), (X,)), compile_config=UNCHECKED)


def test_quantized_inputs_and_outputs() -> None:
    passes = own("exir.passes.quantize_io_pass")
    program = quantized_inside().exported_program()
    assert passes.quantize_input(program, 0) == INT8
    assert passes.quantize_output(program, 0) == INT8
    assert called(program)[0] == "quantized_decomposed.dequantize_per_tensor.default"
    assert called(program)[-1] == "quantized_decomposed.quantize_per_tensor.default"
    x = torch.ops.quantized_decomposed.quantize_per_tensor(X, *INT8)
    assert_close(program.module()(x), requantized(dequantized(x).relu()))
    with pytest.raises(ValueError, match="not used by a quantize op"):
        passes.quantize_input(edge(lambda _, x: x.relu(), X).exported_program(), 0)


def test_a_manager_tells_the_parameters_by_constant_methods() -> None:
    passes = own("exir.passes.quantize_io_pass")
    manager = quantized_inside()
    manager = manager.transform([passes.QuantizeInputs(manager, [0], "forward")])
    manager = manager.transform([passes.QuantizeOutputs(manager, [0], "forward")])
    program = delegraph.Runtime.get().load_program(manager.to_executorch().buffer)
    values = [
        program.load_method(f"forward_input0_{key}").execute([])[0] for key in ("scale", "zp", "quant_max", "dtype")
    ]
    assert values == [0.5, 3, 127, 1]
    assert program.load_method("forward_output0_scale").execute([]) == [0.5]
    given = passes.extract_io_quant_params(quantized_inside())
    assert next(iter(given["inputs"].values()))["zero_point"] == 3
    assert next(iter(given["outputs"].values()))["scale"] == 0.5


# ---- partitioners ----------------------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.linear(x)).sin()


def test_one_configuration_by_operator() -> None:
    partitioners = own("exir.backend.canonical_partitioners.config_partitioner")

    class LinearConfig(partitioners.PartitionerConfig):  # type: ignore[misc, name-defined]
        target_name = "addmm.default"

        def check_constraints(self, node: Any, ep: Any) -> bool:
            return bool(node.meta["val"].dim() == 2)

        def get_original_aten(self) -> Any:
            return None

        def get_partition(self, node: Any, ep: Any) -> list[Any]:
            bias, _, weight = node.args
            return [node, weight, weight.args[0], bias]

    model, x = Model(), torch.randn(2, 4)
    partitioner = partitioners.ConfigerationBasedPartitioner(DelegationSpec("CpuBackend", []), [LinearConfig()])
    manager = to_edge_transform_and_lower(export(model, (x,)), partitioner=[partitioner])
    [lowered] = get_lowered_backend_modules(manager.exported_program().graph_module)
    assert set(lowered.original_module.state_dict) == {"linear.weight", "linear.bias"}
    with torch.no_grad():
        assert_close(manager.exported_program().module()(x), model(x))


def test_what_not_to_partition() -> None:
    supports = own("exir.backend.operator_support")
    program = to_edge(export(Model(), (torch.randn(2, 4),), strict=True)).exported_program()
    checks = [  # which share what they have rejected, as all of that class do in ExecuTorch
        supports.DontPartition(torch.ops.aten.sin.default),
        supports.DontPartitionName("gelu", exact=False),
        supports.DontPartitionModule(module_name="Linear"),
    ]
    left = []
    for check in checks:
        for node in program.graph.nodes:
            if node.op == "call_function":
                check.is_node_supported({}, node)
        left.append(sorted({node.target.__name__.split(".")[1] for node in check.rejected_nodes()}))
    assert left[0] == ["sin"] and {"gelu"} < set(left[1]) and {"addmm", "permute_copy"} < set(left[2])


# ---- graphs ----------------------------------------------------------------------------------------


def test_nodes_moved_into_a_submodule() -> None:
    cutting, model, x = own("exir.lowered_backend_module"), Model(), torch.randn(2, 4)
    program = to_edge(export(model, (x,))).exported_program()
    chosen = ("aten.permute_copy.default", "aten.addmm.default")
    nodes = [node for node in program.graph.nodes if getattr(node.target, "__name__", "") in chosen]
    for node in nodes:
        node.meta["delegation_tag"] = "t"
    tag_constant_data(program)
    submodule, call = cutting.create_submodule_from_nodes(program.graph_module, nodes, "t")
    assert (call.op, call.target) == ("call_module", "fused_t")
    part, taken, written = cutting.create_exported_program_from_submodule(submodule, program, "t", call, False)
    assert sorted(spec.target for spec in taken.values() if spec.target) == ["linear.bias", "linear.weight"]
    assert written == {}
    with torch.no_grad():
        assert_close(part.module()(x)[0], model.linear(x))


def test_nodes_are_compared_as_far_back_as_they_read() -> None:
    first, second = (to_edge(export(Model(), (torch.randn(2, 4),))).exported_program() for _ in range(2))
    is_same_node = own("exir.backend.utils").is_same_node
    assert is_same_node(first.graph.output_node(), second.graph.output_node())
    assert not is_same_node(first.graph.output_node(), second.graph.find_nodes(op="placeholder")[0])


# ---- tools -----------------------------------------------------------------------------------------

TWO_LAYERS = nn.Sequential(nn.Linear(3, 4), nn.ReLU())


def memory_trace(path: Path, **options: Any) -> list[dict[str, Any]]:
    program = to_edge(export(TWO_LAYERS, (torch.ones(2, 3),))).to_executorch()
    own("util.activation_memory_profiler").generate_memory_trace(program, str(path), **options)
    written: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return written


def test_a_trace_of_memory_shows_no_overlap(tmp_path: Path) -> None:
    written = memory_trace(tmp_path / "trace.json", enable_memory_offsets=True)
    assert {event["dur"] for event in written if event["name"].startswith("aten_relu")} == {2 * 4 * 4}
    for step in {event["tid"] for event in written}:
        alive = sorted((event["ts"], event["dur"]) for event in written if event["tid"] == step)
        assert all(start + size <= after for (start, size), (after, _) in pairwise(alive))


def test_its_flatc_compiles_a_schema_of_ones_own(tmp_path: Path) -> None:
    flatbuffer = own("exir._serialize._flatbuffer")
    (tmp_path / "own.fbs").write_text("table T { n: int; } root_type T;")
    (tmp_path / "own.json").write_text('{"n": 5}')
    flatbuffer._flatc_compile(str(tmp_path), str(tmp_path / "own.fbs"), str(tmp_path / "own.json"))
    assert (tmp_path / "own.bin").read_bytes()


def test_its_table_of_an_etdump(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    buffer = to_edge(export(TWO_LAYERS, (torch.ones(2, 3),))).to_executorch().buffer
    program = delegraph.Runtime.get().load_program(buffer, enable_etdump=True)
    program.load_method("forward").execute([torch.ones(2, 3)])
    program.write_etdump_result_to_file(str(tmp_path / "m.etdp"))
    monkeypatch.setattr("sys.argv", ["inspector_cli", "--etdump_path", str(tmp_path / "m.etdp")])
    own("devtools.inspector.inspector_cli").main()
    assert "native_call_relu.out" in capsys.readouterr().out


def test_a_module_of_the_wheel_runs_as_a_command() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "delegraph_executorch.backends.xnnpack.utils.configs"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
