"""A board's memories: read from a file, tensors placed in them by policy and by hand, limits that hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot import ExecutorchBackendConfig, MemoryPlanningPass
from delegraph.cli import main
from delegraph.errors import InvalidArgument, LoweringError
from delegraph.interfaces import Memory, MemoryHierarchy, read_memory_hierarchy
from delegraph.program.devices import Device
from delegraph.program.memory.memory_maps import MemoryMap, memory_map
from delegraph.program.schema import DeviceType

BOARD = """
[[memory]]
name = "dram"
size = "1 MiB"
alignment = 64
[[memory]]
name = "sram"
size = 1280
speed = 8.5
"""


class Net(nn.Module):
    """Four results of 1024 bytes, and a state of 64; `kept` is used twice in a long life."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x[0, :16])
        kept = x.relu()
        y = x.sigmoid().exp().tanh()
        return y + kept + self.seen.sum()


X = torch.arange(256.0).reshape(4, 64) / 100


def board(tmp_path: Path, text: str = BOARD) -> str:
    path = tmp_path / "board.toml"
    path.write_text(text)
    return str(path)


def two(sram: int | None = 1280, dram: int | None = None, **more: Any) -> MemoryHierarchy:
    return MemoryHierarchy((Memory("dram", dram), Memory("sram", sram, speed=8)), **more)


def lowered_map(memory: Any, **config: Any) -> tuple[Any, MemoryMap]:
    lowered = delegraph.lower(Net(), (X,), config=ExecutorchBackendConfig(**config), memory=memory)
    return lowered, memory_map(lowered.program.executorch_program.execution_plan[0])


def test_a_file_tells_the_memories(tmp_path: Path) -> None:
    read = read_memory_hierarchy(board(tmp_path, BOARD + '[place]\n"kept*" = "dram"\n'))
    assert read.memories == (Memory("dram", 2**20, 64), Memory("sram", 1280, speed=8.5))
    assert (read.policy, read.place, read.memory_id("sram")) == ("fastest_first", {"kept*": "dram"}, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one memory"),
        ("memory = 3", r"written as tables, \[\[memory\]\]"),
        ("[[memory]]\nname = ", "Invalid value"),
        ("memory = " + "[" * 3000, "maximum recursion depth"),
        ("memory = " + "9" * 5000, "4300 digits"),
        (f'[[memory]]\nname = "a"\nsize = "{"9" * 5000} KiB"', "4300 digits"),
        ('[[memory]]\nname = "a"\nspeeed = 1', r"\[\[memory\]\] has 'speeed'; it takes name, size"),
        ('memories = "a"', "the file has 'memories'; it takes policy, memory, place"),
        ("[[memory]]\nsize = 3", "name is None; it is a str"),
        ('[[memory]]\nname = ""', "a memory is called ''; each has a name of its own"),
        ('[[memory]]\nname = "a"\n[[memory]]\nname = "a"', "a memory is called 'a'"),
        ('[[memory]]\nname = "a"\nsize = "1 mile"', "size is '1 mile'; it is a number of bytes"),
        ('[[memory]]\nname = "a"\nsize = true', "size is True"),
        ('[[memory]]\nname = "a"\nsize = -1', "memory 'a': size is -1"),
        ('[[memory]]\nname = "a"\nalignment = 24', "alignment is 24 bytes; it is a power of two"),
        ('[[memory]]\nname = "a"\nspeed = 0', "speed is 0; it is above 0"),
        ('[[memory]]\nname = "a"\nspeed = "fast"', "speed is 'fast'; it is a int or float"),
        ('[[memory]]\nname = "a"\ndevice = "toaster"', "device: Unknown device type 'toaster'"),
        ('policy = "best"\n[[memory]]\nname = "a"', "policy is 'best'; it is one of fastest_first, by_hand"),
        ('[[memory]]\nname = "a"\n[place]\nx = "b"', "'x' is to lie in memory 'b'; there are a"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"(?s)board.toml' is not a memory hierarchy: .*{message}"):
        read_memory_hierarchy(board(tmp_path, text))


def test_a_file_that_is_not_there_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"nowhere\.toml' is not a memory hierarchy"):
        delegraph.lower(Net(), (X,), memory=tmp_path / "nowhere.toml")


def test_the_fastest_memory_takes_what_is_used_most_and_the_rest_spills(tmp_path: Path) -> None:
    lowered, told = lowered_map(board(tmp_path))
    by_id = {memory.memory_id: memory for memory in told.memories}
    assert 0 < by_id[2].planned_nbytes <= 1280
    assert by_id[1].planned_nbytes > 0
    longest = max((one for one in told.tensors if one.nbytes == 1024), key=lambda one: one.last - one.first)
    assert longest.memory_id == 1  # `kept`: used twice, and in the way of three others
    assert {one.memory_id for one in told.tensors if one.op in ("aten::sigmoid.out", "aten::exp.out")} == {1, 2}
    assert all(one.offset % 64 == 0 for one in told.tensors if one.memory_id == 1)
    run, model = delegraph.load(bytes(lowered)), Net()
    for _ in range(2):
        torch.testing.assert_close(torch.as_tensor(np.asarray(run(X))), model(X))


def test_one_memory_large_enough_takes_all() -> None:
    _, told = lowered_map(two(sram=None))
    assert {one.memory_id for one in told.tensors} == {2}


def test_by_hand_the_first_memory_has_what_is_not_placed() -> None:
    _, told = lowered_map(two(policy="by_hand", place={"seen": "sram", "aten_exp_*": "sram"}))
    assert {(one.name, one.op) for one in told.tensors if one.memory_id == 2} == {
        ("seen", "state"),
        ("", "aten::exp.out"),
    }


def test_a_node_may_say_its_memory_itself() -> None:
    def exp_in_sram(module: torch.fx.GraphModule) -> None:
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
            node.meta["memory_id"] = 2

    _, told = lowered_map(two(policy="by_hand"), passes=[exp_in_sram])
    assert [one.op for one in told.tensors if one.memory_id == 2] == ["aten::exp.out"]
    one = MemoryHierarchy((Memory("only"),))
    with pytest.raises(LoweringError, match=r"meta\['memory_id'\] is 2, and the memory hierarchy has 1 memories"):
        lowered_map(one, passes=[exp_in_sram])


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(LoweringError, match=r"places 'relux', and no node, input or buffer has such a name; there are"):
        lowered_map(two(place={"relux": "sram"}))
    npu = MemoryHierarchy(
        (Memory("dram"), Memory("npu", device=Device(DeviceType.CUDA))), place={"aten_relu_default": "npu"}
    )
    with pytest.raises(
        LoweringError, match="'aten_relu_default' lies on cpu:0 and is placed in memory 'npu', which is on cuda:0"
    ):
        lowered_map(npu)


def test_a_limit_fails_with_the_tensors_alive_at_the_peak() -> None:
    with pytest.raises(LoweringError) as caught:
        lowered_map(MemoryHierarchy((Memory("sram", 2048),)))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("method 'forward' needs 3,")
    assert "bytes of memory 'sram' (memory_id 1), which has 2,048" in lines[0]
    sizes = [int(line.split()[0].replace(",", "")) for line in lines if " bytes  " in line]
    assert sizes == sorted(sizes, reverse=True) and sum(sizes) > 2048
    assert any(
        "aten_relu_default (" in line and "test_memory_hierarchy.py" in line and "x.relu()" in line for line in lines
    )
    assert any(line.strip().startswith("64 bytes  seen") for line in lines)
    assert "what to do: make these tensors smaller" in lines[-1] and "add a memory" in lines[-1]
    with pytest.raises(LoweringError, match=r"alloc_graph_input=False.*; or place some in another memory"):
        lowered_map(two(sram=16, dram=2048))


def test_a_plan_that_search_could_improve_is_told_so() -> None:
    with pytest.raises(LoweringError, match="memory_planner='search' may find a plan that fits, where 'naive' found"):
        lowered_map(MemoryHierarchy((Memory("sram", 4000),)), memory_planner="naive")


def test_it_is_said_once() -> None:
    with pytest.raises(LoweringError, match=r"both memory_planning_pass and memory; say it once"):
        lowered_map(two(), memory_planning_pass=MemoryPlanningPass())
    _, told = lowered_map(None, memory_planning_pass=MemoryPlanningPass(memory=two(sram=None)))
    assert {one.memory_id for one in told.tensors} == {2}


def test_shared_states_lie_behind_the_memories_that_are_described() -> None:
    config = ExecutorchBackendConfig(share_mutable_buffers=True)
    exported = torch.export.export(Net(), (X,))
    lowered = delegraph.lower({"one": exported, "other": exported}, config=config, memory=two())
    for plan in lowered.program.executorch_program.execution_plan:
        (state,) = [one for one in memory_map(plan).tensors if one.name == "seen"]
        assert state.memory_id == 3


def test_the_command_line_takes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text("import torch\ndef net():\n    return torch.nn.ReLU(), (torch.ones(64),)\n")
    words = ["lower", f"{tmp_path}/net.py:net", "-o", str(tmp_path / "m.pte"), "--memory"]
    assert main([*words, board(tmp_path)]) == 0
    capsys.readouterr()
    small = board(tmp_path, '[[memory]]\nname = "tcm"\nsize = "256 B"\n')
    assert main([*words, small]) == 1
    assert "needs 512 bytes of memory 'tcm'" in capsys.readouterr().err


def test_a_cat_that_is_written_in_parts_is_listed_as_one_tensor() -> None:
    class Joined(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x.exp(), x.sin()]) * 2

    with pytest.raises(LoweringError, match=r"2,048 bytes  aten_cat_default \(.*torch\.cat\(\[x\.exp\(\), x\.sin"):
        delegraph.lower(Joined(), (X,), memory=MemoryHierarchy((Memory("sram", 1024),)))
