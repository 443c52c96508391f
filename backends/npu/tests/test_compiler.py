"""The compiler's passes: what becomes of a small network, whatever SRAM there is, and what its options change.

Networks are quantized by hand and have int8 inputs and outputs: each is one partition, as the partitioner would cut it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
import torch.nn.functional as F
from backends.npu.tests.compiled import exported, weight
from numpy.typing import NDArray
from torch.export import ExportedProgram

from delegraph.aot import edge_program
from delegraph.errors import PreprocessError
from delegraph_npu.aot import ir, scheduling
from delegraph_npu.aot.folding import fold
from delegraph_npu.aot.fusing import fuse
from delegraph_npu.aot.operators import OPERATORS
from delegraph_npu.aot.options import Options
from delegraph_npu.aot.preprocess import NpuLowering
from delegraph_npu.aot.scheduling import Schedule, schedule, too_large
from delegraph_npu.aot.storage import lay_out
from delegraph_npu.aot.weight_blocks import WeightBlocks
from delegraph_npu.blob import NamedWeights, unpack
from delegraph_npu.command_stream import decode
from delegraph_npu.commands import DmaStart, Elementwise, Region
from delegraph_npu.device import read_device
from delegraph_npu.runtime.program import Machine, read_program

ops = torch.ops.quantized_decomposed

DEVICE = """
name = "test"
clock_mhz = 500.0
regions = { sram = "sram", dram = "flash", weights = "flash", tables = "flash" }
array = { rows = 16, columns = 8 }

[[memories]]
name = "sram"
nbytes = %d
port_nbytes = 8

[[memories]]
name = "flash"
nbytes = "64 MiB"
port_nbytes = 1
"""


def dq(x: torch.Tensor, scale: float = 0.05, zero: int = 3) -> torch.Tensor:
    bounds = torch.iinfo(x.dtype)
    real: torch.Tensor = ops.dequantize_per_tensor.default(x, scale, zero, bounds.min, bounds.max, x.dtype)
    return real


def q(x: torch.Tensor, scale: float = 0.05, zero: int = 3, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    bounds = torch.iinfo(dtype)
    integers: torch.Tensor = ops.quantize_per_tensor.default(x, scale, zero, bounds.min, bounds.max, dtype)
    return integers


def r(x: torch.Tensor, scale: float = 0.05, zero: int = 3) -> torch.Tensor:
    """Rounded to a grid."""
    return dq(q(x, scale, zero), scale, zero)


def program_of(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> ExportedProgram:
    return edge_program(exported(function, *inputs))


def image(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)


INPUT = image(1, 3, 33, 30)


def network(x: torch.Tensor) -> torch.Tensor:
    """A residual block between a strided and a pointwise convolution, then pools of two branches, and an average."""
    y = dq(q(F.pad(dq(x), (1, 1, 1, 1))))
    y = r(F.relu(F.conv2d(y, weight(24, 3, 3, 3), stride=2)), 0.1, -128)
    z = r(F.conv2d(y, weight(24, 1, 3, 3), padding=1, groups=24), 0.2, 10)
    y = r(r(F.conv2d(z, weight(24, 24, 1, 1)), 0.3, 1) + y, 0.4, 0)
    y = r(F.gelu(r(F.conv2d(y, weight(40, 24, 1, 1)), 0.5, 5)), 0.5, -20)
    a, b = r(F.avg_pool2d(y, 2), 0.5, -20), r(torch.sigmoid(y), 0.5, -20)
    y = r(torch.cat([a, r(F.avg_pool2d(b, 2), 0.5, -20)], 1), 0.5, -20)
    return q(y.mean((2, 3)), 0.3, 2)


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return program_of(network, INPUT)


@dataclass(frozen=True)
class Compiled:
    """A blob, and what comes out of it."""

    blob: bytes
    given: tuple[NDArray[Any], ...]

    @property
    def commands(self) -> list[Any]:
        return decode(unpack(self.blob).stream)


@pytest.fixture
def run() -> Callable[..., Compiled]:
    """Compile a program for a device with so much SRAM, and run it."""

    def compiled(program: ExportedProgram, *inputs: torch.Tensor, sram: int = 1 << 20, **options: Any) -> Compiled:
        blob = NpuLowering.preprocess(program, Options(DEVICE % sram, **options).specs()).processed_bytes
        content = unpack(blob)
        assert not isinstance(content.weights, NamedWeights)
        machine = Machine(read_program(content, content.weights), lambda nbytes: np.zeros(nbytes, np.uint8))
        for place, value in zip(machine.inputs, inputs, strict=True):
            place[...] = value.numpy()
        for step in machine.steps:
            step()
        return Compiled(blob, tuple(output.copy() for output in machine.outputs))

    return compiled


def planned(program: ExportedProgram, sram: int, optimize: str = "performance") -> Schedule:
    device = read_device(DEVICE % sram, "a test")
    graph = fuse(fold(program, {name: row.convert for name, row in OPERATORS.items()}))
    return schedule(lay_out(graph), device, WeightBlocks(device.array.columns, True), optimize)


# ---- whatever SRAM there is -----------------------------------------------------------------------------------------


def test_a_network_is_within_a_step_of_torch(program: ExportedProgram, run: Callable[..., Compiled]) -> None:
    (given,) = run(program, INPUT).given
    expected = network(INPUT).numpy()
    assert np.abs(given.astype(int) - expected).max() <= 1
    assert len(np.unique(expected)) > 20


@pytest.mark.parametrize("sram", [40_000, 20_000, 9_000, 5_000, 3_000])
def test_tiles_compute_the_same(program: ExportedProgram, run: Callable[..., Compiled], sram: int) -> None:
    whole, tiled = run(program, INPUT), run(program, INPUT, sram=sram)
    assert unpack(tiled.blob).sram_nbytes <= sram
    assert (whole.given[0] == tiled.given[0]).all()
    outside = [
        c for c in tiled.commands if isinstance(c, DmaStart) and Region.DRAM in (c.source.region, c.target.region)
    ]
    assert bool(outside) == (unpack(tiled.blob).dram_nbytes > 0)


def test_what_does_not_fit_goes_to_dram_and_comes_back_or_is_cascaded(program: ExportedProgram) -> None:
    roomy, tight = planned(program, 1 << 20), planned(program, 5_000)
    assert roomy.dram_nbytes == 0 and all(len(plan.operators) == 1 for plan in roomy.plans)
    assert tight.dram_nbytes > 0
    cascades = [plan for plan in tight.plans if len(plan.operators) > 1]
    assert cascades and all(len(plan.tiles) > 1 for plan in cascades)
    places = {key[0] for key in tight.sram} | {key[0] for key in tight.dram}
    inner = [operator.output.name for plan in cascades for operator in plan.operators[:-1]]
    assert not {getattr(place, "name", "") for place in places} & set(inner), "what is inside has no place of its own"


def test_scratch_is_near_its_lower_bound(program: ExportedProgram) -> None:
    for sram in (1 << 20, 20_000, 5_000):
        plan = planned(program, sram)
        assert plan.lower_bound <= plan.sram_nbytes <= 1.25 * plan.lower_bound


def test_too_little_sram_is_told(program: ExportedProgram, run: Callable[..., Compiled]) -> None:
    with pytest.raises(
        PreprocessError, match="does not fit into 600 bytes of SRAM, in whatever tiles; it needs a device"
    ) as caught:
        run(program, INPUT, sram=600)
    assert caught.value.node in {node.name for node in program.graph.nodes}


def test_whatever_fits_by_itself_has_a_place_in_the_partition(program: ExportedProgram) -> None:
    """Which is what the partitioner takes it for."""
    layout = lay_out(fuse(fold(program, {name: row.convert for name, row in OPERATORS.items()})))
    fitting = set()
    for sram in range(600, 3_000, 190):
        device = read_device(DEVICE % sram, "a test")
        blocks = WeightBlocks(device.array.columns, True)
        reason = too_large(layout, device, blocks)
        fitting.add(reason is None)
        if reason is None:
            assert schedule(layout, device, blocks, "performance").sram_nbytes <= sram
        else:
            assert f"does not fit into {sram} bytes of SRAM" in reason
    assert fitting == {True, False}


def test_operators_that_take_turns_compute_the_same(
    program: ExportedProgram, run: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the gaps between buffers leave no other place."""
    whole = run(program, INPUT)
    monkeypatch.setattr(scheduling, "_ATTEMPTS", 0)
    apart = run(program, INPUT, sram=3_000)
    assert (whole.given[0] == apart.given[0]).all() and unpack(apart.blob).dram_nbytes > 0


# ---- fewer operators ------------------------------------------------------------------------------------------------


def test_activations_limits_and_padding_are_fused(program: ExportedProgram) -> None:
    graph = fuse(fold(program, {name: row.convert for name, row in OPERATORS.items()}))
    kinds = [type(operator).__name__ for operator in graph.operators]
    assert kinds == [
        *("Convolution", "Convolution", "Convolution", "Binary", "Convolution"),
        *("Pool", "Table", "Pool", "Concat", "Reduce"),
    ]
    first, *_ = graph.operators
    assert isinstance(first, ir.Convolution) and first.window.padding == (1, 1, 1, 1)
    assert graph.operators[4].table is not None, "gelu is the output stage's"


def test_what_only_moves_needs_no_command(run: Callable[..., Compiled]) -> None:
    def moves(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(dq(x))
        y = r(y, 0.01, 0).permute(0, 2, 3, 1)
        y = r(y, 0.01, 0)[:, 1:]
        y = r(y, 0.01, 0)[:, :, ::2]
        y = r(y, 0.01, 0).transpose(1, 2)
        return q(y, 0.01, 0)

    taken = image(1, 3, 5, 6)
    compiled = run(program_of(moves, taken), taken)
    assert (compiled.given[0] == moves(taken).numpy()).all()
    assert not any(isinstance(command, Elementwise) for command in compiled.commands)


def test_a_concat_is_written_in_place(program: ExportedProgram, run: Callable[..., Compiled]) -> None:
    copies = [command for command in run(program, INPUT).commands if isinstance(command, Elementwise)]
    assert len(copies) == 1, "the sum of the residual block alone"


# ---- int16 ----------------------------------------------------------------------------------------------------------


def test_int16_functions_interpolate(run: Callable[..., Compiled]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(dq(x, 2**-12, 0))
        return q(y, 2**-15, 0, torch.int16)

    taken = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).reshape(256, 256)
    (given,) = run(program_of(function, taken), taken).given
    difference = np.abs(given.astype(int) - function(taken).numpy())
    assert difference.max() <= 2, "a table of 513 entries, with lines between them"


def test_int16_sums_and_products(run: Callable[..., Compiled]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = dq(x, 0.001, 0), dq(y, 0.003, 0)
        c, d = dq(x, 0.001, 0), dq(y, 0.003, 0)
        return q(a + b, 0.005, 0, torch.int16), q(c * d, 0.1, 0, torch.int16)

    taken = [(image(8, 40).to(torch.int16) * 256 + image(8, 40)) for _ in range(2)]
    given = run(program_of(function, *taken), *taken).given  # type: ignore[arg-type]
    for got, expected in zip(given, function(*taken), strict=True):
        assert np.abs(got.astype(int) - expected.numpy()).max() <= 1


# ---- options --------------------------------------------------------------------------------------------------------


def test_optimizing_size_takes_less_sram(program: ExportedProgram, run: Callable[..., Compiled]) -> None:
    fast, small = run(program, INPUT), run(program, INPUT, optimize="size")
    assert unpack(small.blob).sram_nbytes < unpack(fast.blob).sram_nbytes / 2
    assert (fast.given[0] == small.given[0]).all()


def test_weights_are_compressed_unless_they_are_not_to_be(run: Callable[..., Compiled]) -> None:
    few = torch.randint(-3, 4, (32, 32, 3, 3), generator=torch.Generator().manual_seed(0), dtype=torch.int8)

    def layer(x: torch.Tensor) -> torch.Tensor:
        weights = ops.dequantize_per_tensor.default(few, 0.01, 0, -127, 127, torch.int8)
        return q(F.conv2d(dq(x), weights), 0.5, 0)

    taken = image(1, 32, 6, 6)
    program = program_of(layer, taken)
    packed, plain = run(program, taken), run(program, taken, compress_weights=False)
    assert len(packed.blob) < len(plain.blob) - few.numel() // 2
    assert (packed.given[0] == plain.given[0]).all()


def test_rounding_twice_differs_in_a_step_at_most(program: ExportedProgram, run: Callable[..., Compiled]) -> None:
    once, twice = run(program, INPUT), run(program, INPUT, rounding="double")
    assert unpack(twice.blob).rounding == "double"
    assert np.abs(once.given[0].astype(int) - twice.given[0]).max() <= 1


def test_each_pass_tells_what_it_made(program: ExportedProgram) -> None:
    texts = NpuLowering.preprocess(program, [])._delegate_info_meta
    assert list(texts) == ["folding", "fusing", "storage", "scheduling", "emission"]
    assert "convolution 3x3 stride (2, 2) padding (1, 1, 1, 1)" in texts["fusing"]
    assert "SRAM: " in texts["scheduling"]
    assert "Conv(" in texts["emission"]


def test_an_average_on_another_grid_is_rounded_once(run: Callable[..., Compiled]) -> None:
    def pools(x: torch.Tensor) -> torch.Tensor:
        return q(F.avg_pool2d(dq(x), 4), 0.011, -7)

    taken = image(1, 5, 16, 16)
    (given,) = run(program_of(pools, taken), taken).given
    assert np.abs(given.astype(int) - pools(taken).numpy()).max() <= 1
