"""The Inspector: times, modules and gaps of a run of ours; and ExecuTorch's own Inspector reads the same files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot import ETRecord, to_edge, to_edge_transform_and_lower
from delegraph.program.etdump import deserialize_etdump, serialize_etdump
from delegraph.runtime import Runtime
from delegraph_executorch.devtools import Inspector
from delegraph_executorch.devtools.inspector import Event, EventBlock, PerfData, TimeScale
from delegraph_executorch.devtools.inspector._matching import merge_runtime_overlapping_debug_handles
from delegraph_executorch.devtools.inspector._methods import MethodRecord, fitting_method, programs_of

EDGE = "edge_dialect_exported_program"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low, high = torch.split(self.up(x).relu(), 4, dim=1)
        return self.down(torch.cat([high, low], 1)), torch.nn.functional.layer_norm(low, [4])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ETRecord, an ETDump of three runs on its representative inputs, and the debug buffer."""
    folder, x = tmp_path_factory.mktemp("inspector"), torch.randn(3, 4)
    program = to_edge(torch.export.export(Model(), (x,)), generate_etrecord=True).to_executorch()
    record = program.get_etrecord()
    record.update_representative_inputs([x])
    record.save(folder / "etrecord.bin")
    loaded = Runtime.get().load_program(program.buffer, enable_etdump=True, debug_buffer_size=1 << 16)
    method = loaded.load_method("forward")
    for _ in range(3):
        method.execute([x])
    loaded.write_etdump_result_to_file(folder / "run.etdp", folder / "run.bin")
    return folder


def inspector(files: Path, **options: Any) -> Inspector:
    return Inspector(
        etdump_path=str(files / "run.etdp"),
        etrecord=str(files / "etrecord.bin"),
        debug_buffer_path=str(files / "run.bin"),
        **options,
    )


def told(files: Path) -> list[Any]:
    return [
        [event.name, sorted(set(event.op_types)), len(event.perf_data.raw if event.perf_data else ())]
        for block in inspector(files).event_blocks
        for event in block.events
    ]


def test_events_have_operators_modules_and_all_runs(files: Path) -> None:
    by_name = {name: (ops, runs) for name, ops, runs in told(files)}
    assert by_name["Program::load_method"] == ([], 1)
    assert by_name["Method::execute"] == ([], 3)
    assert by_name["native_call_relu.out"] == (["aten.relu.default"], 3)
    shown = inspector(files)
    addmms = [event for block in shown.event_blocks for event in block.events if "addmm" in event.name]
    paths = [[path for path, _ in next(iter(event.module_hierarchy.values())).values()] for event in addmms]
    assert [path[-1] for path in paths] == ["up", "down"]
    assert all("forward" in next(iter(event.stack_traces.values())) for event in addmms)
    assert [*shown.get_op_list("Execute")["aten.addmm.default"]] == addmms


def test_totals_and_units(files: Path) -> None:
    milliseconds, microseconds = inspector(files), inspector(files, target_time_scale=TimeScale.US)
    up, down, model = (milliseconds.find_total_for_module(name) for name in ("up", "down", "L__self__"))
    assert up > 0
    assert up + down < model
    assert microseconds.find_total_for_module("up") == pytest.approx(1000 * up)
    assert "avg (us)" in microseconds.to_dataframe().columns


def test_the_table(files: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = inspector(files)
    shown.print_data_tabular()
    printed = capsys.readouterr().out
    assert "native_call_addmm.out" in printed
    assert "stack_traces" not in printed
    with (tmp_path / "table.tsv").open("w") as file:
        shown.save_data_to_tsv(file)
    assert (tmp_path / "table.tsv").read_text().splitlines()[0].startswith("\tevent_block_name\tevent_name\tp10 (ms)")


@pytest.mark.parametrize(("distance", "most"), [("MSE", 1e-12), ("L1", 1e-5)])  # a mean of squares, and a sum
def test_the_gap_to_the_graph(files: Path, distance: str, most: float) -> None:
    table = inspector(files).calculate_numeric_gap(distance, reference_graph=EDGE)
    runtime = [name for names in table["runtime_ops"] for name in names]
    assert {"native_call_addmm.out", "native_call_relu.out", "native_call_cat.out"} <= set(runtime)
    assert all(gap < most for gaps in table["gap"] for gap in gaps)
    assert all("forward" in trace for traces in table["stacktraces"] for trace in traces.values())


def test_a_wrong_value_is_found(files: Path) -> None:
    shown = inspector(files)
    for event in (event for block in shown.event_blocks for event in block.events if "relu" in event.name):
        event.debug_data = [event.debug_data[0] + 1]
    table = shown.calculate_numeric_gap("MSE", reference_graph=EDGE)
    wrong = [names for names, gaps in zip(table["runtime_ops"], table["gap"], strict=True) if gaps[0] > 0.5]
    assert wrong == [["native_call_relu.out"]]


def test_the_gap_of_a_delegate(tmp_path: Path) -> None:
    """Its last result is compared with that of the calls that it has taken, in either graph; a wrong one is found."""
    x = torch.randn(3, 4)
    exported = torch.export.export(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)), (x,))
    program = to_edge_transform_and_lower(exported, partitioner=["cpu"], generate_etrecord=True).to_executorch()
    record = program.get_etrecord()
    record.update_representative_inputs([x])
    record.save(tmp_path / "etrecord.bin")
    loaded = Runtime.get().load_program(program.buffer, enable_etdump=True, debug_buffer_size=1 << 16)
    loaded.load_method("forward").execute([x])
    loaded.write_etdump_result_to_file(tmp_path / "run.etdp", tmp_path / "run.bin")
    shown = inspector(tmp_path)
    (call,) = (event for block in shown.event_blocks for event in block.events if event.name == "DELEGATE_CALL")
    assert (call.debug_handles, call.delegate_backend_name) == ([1, 2, 3], "CpuBackend")
    for reference, operators in (
        ("exported_program", ["linear", "sigmoid", "linear_1"]),
        (EDGE, ["aten_linear_default", "aten_sigmoid_default", "aten_linear_default_1"]),
    ):
        (row,) = shown.calculate_numeric_gap("MSE", reference_graph=reference).to_dict("records")
        assert (row["aot_ops"], row["runtime_ops"]) == (operators, ["DELEGATE_CALL"])
        assert row["gap"][0] < 1e-9
    call.debug_data = [call.debug_data[0] + 1]
    (row,) = shown.calculate_numeric_gap("MSE", reference_graph=EDGE).to_dict("records")
    assert row["gap"][0] == pytest.approx(1, abs=1e-4)


def test_what_is_refused(files: Path) -> None:
    with pytest.raises(ValueError, match="Unsupported distance metric 'X'; there are MSE, L1, SNR"):
        inspector(files).calculate_numeric_gap("X", reference_graph=EDGE)
    with pytest.raises(ValueError, match="Reference graph 'other/forward' not found"):
        inspector(files).calculate_numeric_gap("MSE", reference_graph="other")
    with pytest.raises(ValueError, match="exactly one of etdump_path or etdump_data"):
        Inspector()
    with pytest.raises(RuntimeError, match="both the source and target time scale have to be in cycles"):
        Inspector(etdump_path="x", source_time_scale=TimeScale.CYCLES)


def test_what_a_backend_says_of_its_events() -> None:
    block = EventBlock("Execute", [Event("7", PerfData([1.0]), delegate_debug_identifier=7, _instruction_id=2)])
    block._gen_resolve_debug_handles({"2": [4, 5, 6]}, {"2": {"name": "Npu", "delegate_map": {"7": [5]}}}, {"2": 1})
    (event,) = block.events
    assert (event.debug_handles, event.delegate_backend_name) == ([5], "Npu")


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2).tanh()


class Cosine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.cos() - 1).exp()


def traced(folder: Path, methods: dict[str, nn.Module], ran: tuple[str, ...], said: bool = True) -> Path:
    """The files of a run of each method in `ran`; if not `said`, as of a runtime that does not say which ran."""
    x = torch.ones(2, 3)
    exported = {name: torch.export.export(model, (x,)) for name, model in methods.items()}
    program = to_edge(exported, generate_etrecord=True).to_executorch()
    record = program.get_etrecord()
    record.update_representative_inputs([x])
    record.save(folder / "etrecord.bin")
    loaded = Runtime.get().load_program(program.buffer, enable_etdump=True, debug_buffer_size=1 << 16)
    for name in ran:
        loaded.load_method(name).execute([x])
    loaded.write_etdump_result_to_file(folder / "run.etdp", folder / "run.bin")
    if not said:
        dump = deserialize_etdump((folder / "run.etdp").read_bytes())
        for event in (event.profile_event for run in dump.run_data for event in run.events or ()):
            if event is not None:
                event.delegate_debug_metadata = None
        (folder / "run.etdp").write_bytes(serialize_etdump(dump))
    return folder


def operators_by_method(shown: Inspector) -> dict[str | None, list[str]]:
    ran = [block for block in shown.event_blocks if block.name == "Execute"]
    return {block.method_name: [op for event in block.events for op in event.op_types] for block in ran}


SINE = ["aten.sin.default", "aten.mul.Tensor", "aten.tanh.default"]
COSINE = ["aten.cos.default", "aten.sub.Tensor", "aten.exp.default"]


@pytest.mark.parametrize("said", [True, False], ids=["recorded", "by its calls"])
@pytest.mark.parametrize("first", ["forward", "prefill"])
def test_events_are_of_the_method_that_ran(tmp_path: Path, first: str, said: bool) -> None:
    """Also where no method is called forward; and the gap is that method's."""
    shown = inspector(traced(tmp_path, {first: Sine(), "other": Cosine()}, ("other",), said))
    assert operators_by_method(shown) == {"other": COSINE}
    table = shown.calculate_numeric_gap("MSE")
    assert [*table["aot_ops"]] == [["aten_cos_default"], ["aten_sub_tensor"], ["aten_exp_default"]]
    assert all(gap < 1e-9 for gaps in table["gap"] for gap in gaps)


def test_several_methods_in_one_etdump(tmp_path: Path) -> None:
    shown = inspector(traced(tmp_path, {"forward": Sine(), "other": Cosine()}, ("forward", "other", "forward")))
    assert operators_by_method(shown) == {"forward": SINE, "other": COSINE}
    assert {*shown.to_dataframe()["method_name"]} == {"forward", "other"}
    with pytest.raises(ValueError, match=f"runs of forward, other; say which .*reference_graph='{EDGE}/forward'"):
        shown.calculate_numeric_gap("MSE")
    for method, calls in (("forward", ["sin", "mul", "tanh"]), ("other", ["cos", "sub", "exp"])):
        table = shown.calculate_numeric_gap("MSE", reference_graph=f"{EDGE}/{method}")
        assert [names[0].split("_")[1] for names in table["aot_ops"]] == calls
        assert [names[0].split("_")[2].split(".")[0] for names in table["runtime_ops"]] == calls
        assert all(gap < 1e-9 for gaps in table["gap"] for gap in gaps)


def test_which_method_ran_is_not_guessed(tmp_path: Path) -> None:
    """Two methods with the same calls: the user says which, unless the ETDump does."""
    files = traced(tmp_path, {"forward": Sine(), "other": Sine()}, ("other",), said=False)
    with pytest.raises(ValueError, match=r"which method the run 'Execute' was of, .* fits forward, other equally well"):
        inspector(files)
    shown = inspector(files, method_name="other")
    assert operators_by_method(shown) == {"other": SINE}
    with pytest.raises(ValueError, match="the ETDump has no run of forward, only of other"):
        shown.calculate_numeric_gap("MSE", reference_graph=f"{EDGE}/forward")
    with pytest.raises(ValueError, match=r"no graph 'nothing'; it has .*edge_dialect_graph_module"):
        inspector(files, reference_graph_name="nothing")


def test_a_run_that_fits_no_method() -> None:
    """A call of a delegate where each method calls a kernel; what calls nothing, such as a load, fits nobody."""
    methods = {name: MethodRecord({"0": 1}, {}, {}, {}) for name in ("prefill", "decode")}
    with pytest.raises(ValueError, match="the run 'Execute' was of, and it fits none of prefill, decode; say it"):
        fitting_method([("0", "DELEGATE_CALL")], methods, "Execute")
    assert fitting_method([], methods, "Default") is None
    with pytest.raises(ValueError, match="the ETRecord has no edge program to compare with"):
        programs_of(ETRecord(), "prefill")


def test_a_method_that_the_etrecord_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = traced(tmp_path, {"forward": Sine(), "other": Cosine()}, ("other",))
    (tmp_path / "forward").mkdir()
    alone = traced(tmp_path / "forward", {"forward": Sine()}, ("forward",))
    (files / "etrecord.bin").write_bytes((alone / "etrecord.bin").read_bytes())
    shown = inspector(files)
    assert operators_by_method(shown) == {"other": []}
    assert "knows no nodes of the method 'other', only of forward" in caplog.text
    with pytest.raises(ValueError, match="the ETRecord has no edge program of other, only of forward"):
        shown.calculate_numeric_gap("MSE")


def test_overlapping_handles_are_one() -> None:
    merged = merge_runtime_overlapping_debug_handles({(1, 2): (0, "a", 1), (2, 3): (4, "b", 1), (9,): (1, "c", 1)})
    assert merged == {(1, 2, 3): (4, "b", 1), (9,): (1, "c", 1)}


THEIRS = f"""
import json, sys, warnings
warnings.filterwarnings("ignore")
from executorch.devtools import Inspector
folder = sys.argv[1]
shown = Inspector(
    etdump_path=folder + "/run.etdp", etrecord=folder + "/etrecord.bin", debug_buffer_path=folder + "/run.bin"
)
events = [
    [event.name, sorted(set(event.op_types)), len(event.perf_data.raw)]
    for block in shown.event_blocks for event in block.events
]
table = shown.calculate_numeric_gap("MSE", reference_graph="{EDGE}")
print(json.dumps([events, [[ops, gap] for ops, gap in zip(table["runtime_ops"], table["gap"])]]))
"""


@pytest.mark.executorch
def test_executorchs_inspector_reads_the_same(files: Path, executorch_package: Path) -> None:
    ran = subprocess.run(
        [executorch_package.parents[3] / "bin" / "python", "-c", THEIRS, str(files)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    events, gaps = json.loads(ran.stdout.splitlines()[-1])
    assert events == told(files)
    ours = inspector(files).calculate_numeric_gap("MSE", reference_graph=EDGE)
    assert sorted(name for names, _ in gaps for name in names) == sorted(
        name for names in ours["runtime_ops"] for name in names
    )
    assert all(value < 1e-6 for _, values in gaps for value in values)


@pytest.mark.parametrize("backend", ["", "cpu"])
def test_a_program_tells_what_an_etrecord_would(backend: str, tmp_path: Path) -> None:
    """Of a program of Delegraph's, modules and operators are known without an ETRecord, inside of delegates, too."""
    model, x = Model().eval(), torch.randn(3, 4)
    backends = [backend] if backend else []
    delegraph.lower(model, (x,), backends=backends).save(tmp_path / "m.pte")
    loaded = Runtime.get().load_program(tmp_path / "m.pte", enable_etdump=True, debug_buffer_size=1 << 16)
    options = {"CpuBackend": {"profiling": True}} if backend == "cpu" else {}
    loaded.load_method("forward", backend_options=options).execute([x])
    loaded.write_etdump_result_to_file(tmp_path / "run.etdp", tmp_path / "run.bin")
    files = {"etdump_path": str(tmp_path / "run.etdp"), "debug_buffer_path": str(tmp_path / "run.bin")}
    told = Inspector(**files, program=str(tmp_path / "m.pte"))  # type: ignore[arg-type]
    assert told.find_total_for_module("up") > 0 and told.find_total_for_module("down") > 0
    events = [event for block in told.event_blocks for event in block.events if event.op_types]
    assert {bool(event.is_delegated_op) for event in events} >= {bool(backend)}
    ops = {op for event in events for op in event.op_types}
    assert ops & {"aten.linear.default", "aten.addmm.default"}
    lines = {line for event in events for line in event.stack_traces.values()}
    assert any("tests/test_inspector.py:" in str(line) for line in lines)
    same = Inspector(**files, program=(tmp_path / "m.pte").read_bytes())  # type: ignore[arg-type]
    assert [e.op_types for b in same.event_blocks for e in b.events] == [
        e.op_types for b in told.event_blocks for e in b.events
    ]
