"""What lowering makes: folded and fused graphs, weights outside, what is refused and why."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from backends.cpu.tests.harness import Function, Functions, Lowered, arguments_of, declined, edge
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

import delegraph
from delegraph.errors import (
    DelegateInvalidCompatibility,
    InvalidArgument,
    PreprocessError,
    UnknownOption,
    UnsupportedOperator,
)
from delegraph.interfaces import BackendInitContext, PreprocessResult
from delegraph.plugins import PluginRegistry
from delegraph_cpu.aot import preprocess
from delegraph_cpu.aot.graph import TABLE
from delegraph_cpu.aot.partitioner import cpu_partitioner
from delegraph_cpu.aot.preprocess import CpuLowering
from delegraph_cpu.blob import unpack
from delegraph_cpu.runtime.backend import CpuBackend


def operators(program: ExportedProgram) -> dict[str, int]:
    graph = unpack(CpuLowering.preprocess(program, []).processed_bytes).graph
    return dict(Counter(node.op_type for node in onnx.load_from_string(bytes(graph)).graph.node))


def test_pad_batch_norm_and_activation_become_part_of_the_convolution() -> None:
    model = nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 2, 1)
    )
    assert operators(edge(model, (torch.randn(1, 3, 8, 8),))) == {"FusedConv": 1, "Conv": 1}


def test_attention_is_one_operator_without_transposes() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    found = operators(edge(model, (torch.randn(2, 5, 8),)))
    assert found["Attention"] == 1
    assert found["LayerNormalization"] == 2
    assert "Softmax" not in found


@pytest.mark.parametrize(("length", "found"), [(1024, "MultiHeadAttention"), (1023, "Attention")])
def test_attention_to_long_rows_never_has_all_scores_at_once(length: int, found: str) -> None:
    given = (torch.randn(1, 2, rows, 4) for rows in (3, length, length))
    assert operators(edge(Function(F.scaled_dot_product_attention), tuple(given)))[found] == 1


MASKS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], set[str]]] = {
    "hides nothing": (lambda rows: rows >= 0, set()),
    "adds nothing": (lambda rows: (rows * 0).float(), set()),
    "lets each row see something": (lambda rows: rows <= torch.arange(6)[:, None], set()),
    "hides a row": (lambda rows: rows < torch.arange(6)[:, None], {"Mul"}),
}


@pytest.mark.parametrize("form", MASKS)
def test_a_mask_that_is_known_costs_what_it_hides(form: str) -> None:
    make, added = MASKS[form]
    x = torch.randn(1, 2, 6, 4)
    program = edge(
        Function(lambda q: F.scaled_dot_product_attention(q, q, q, make(torch.arange(6)).expand(1, 1, 6, 6))), (x,)
    )
    graph = onnx.load_from_string(bytes(unpack(CpuLowering.preprocess(program, []).processed_bytes).graph)).graph
    (attention,) = [node for node in graph.node if node.op_type == "Attention"]
    assert (len(attention.input) == 4) == (form not in ("hides nothing", "adds nothing"))
    assert {node.op_type for node in graph.node} - {"Attention", "Reshape", "Transpose"} == added
    mask = make(torch.arange(6)).expand(1, 1, 6, 6)
    (got,) = Lowered(program)(x)
    np.testing.assert_allclose(got, F.scaled_dot_product_attention(x, x, x, mask), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 12.0])
def test_a_mask_that_hides_by_a_number_makes_no_subnormal_weights(factor: float) -> None:
    """Swin's -100: e^-100 is subnormal. A score that is larger still counts; a row that is NaN stays so."""
    torch.manual_seed(0)
    hidden = torch.where(torch.eye(6).bool(), 0.0, -100.0)[None, None]
    x, values = factor * torch.randn(2, 2, 6, 4), torch.randn(2, 2, 6, 4)
    model = Function(lambda q, v: F.scaled_dot_product_attention(q, q, v, hidden * 1.0, scale=1.0))
    program = edge(model, (x, values))
    found = operators(program)
    assert found["Max"] == found["Softmax"] == 1 and "Attention" not in found
    expected = F.scaled_dot_product_attention(x, x, values, hidden, scale=1.0)
    assert (factor == 1.0) == torch.allclose(expected, values)  # or else some larger score is seen through the mask
    lowered = Lowered(program)
    np.testing.assert_allclose(lowered(x, values)[0], expected, rtol=1e-4, atol=1e-5)
    x[0, 0, 2, 1] = math.nan
    expected = F.scaled_dot_product_attention(x, x, values, hidden, scale=1.0)
    np.testing.assert_allclose(lowered(x, values)[0], expected, rtol=1e-4, atol=1e-5)


def _window(hidden: float) -> torch.Tensor:
    """Three windows, of which each hides something else."""
    return torch.where(torch.randn(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)) > 0.5, hidden, 0.0)


REPEATED = {  # how a mask is made, of what, and how many numbers of it have to be stored
    "windows of several images": (lambda m: m.repeat(4, 1, 1, 1), _window(-100.0), 3 * 256),
    "windows by heads": (lambda m: m.repeat(4, 2, 1, 1), _window(-100.0), 3 * 256),
    "one for all": (lambda m: m[:1].expand(12, 2, 16, 16), _window(-100.0), 256),
    "one for all, fused": (lambda m: m[:1].expand(12, 2, 16, 16), _window(-1.0), 256),
    "one for all, of bools": (lambda m: (m[:1] == 0).expand(12, 2, 16, 16), _window(-1.0), 256),
    "by heads alone": (lambda m: m[:2, 0], _window(-100.0), 2 * 256),
    "windows, fused": (lambda m: m.repeat(4, 1, 1, 1), _window(-1.0), 12 * 256),
}


@pytest.mark.parametrize("form", REPEATED)
def test_a_mask_that_is_known_is_stored_without_its_repetitions(form: str) -> None:
    make, window, stored = REPEATED[form]
    x = torch.randn(12, 2, 16, 4)
    program = edge(Function(lambda q: F.scaled_dot_product_attention(q, q, q, make(window * 1.0))), (x,))
    blob = unpack(CpuLowering.preprocess(program, []).processed_bytes)
    assert max(weight.nbytes for weight in blob.weights) == 4 * stored
    (got,) = Lowered(program)(x)
    np.testing.assert_allclose(got, F.scaled_dot_product_attention(x, x, x, make(window)), rtol=1e-5, atol=1e-6)


def test_transposes_and_reshapes_that_undo_each_other_vanish() -> None:
    program = edge(
        Function(lambda t: t.permute(2, 0, 1).permute(1, 2, 0).reshape(24).view(2, 3, 4) + 1), (torch.ones(2, 3, 4),)
    )
    assert operators(program) == {"Add": 1}


def test_weights_lie_outside_the_graph_unchanged() -> None:
    model = nn.Linear(64, 32)
    blob = unpack(CpuLowering.preprocess(edge(model, (torch.randn(2, 64),)), []).processed_bytes)
    assert len(blob.graph) < 1000
    (weight,) = blob.weights
    stored = np.frombuffer(blob.data, np.float32, 64 * 32, weight.offset).reshape(weight.shape)
    np.testing.assert_array_equal(stored, model.weight.detach().numpy())
    assert blob.onnxruntime == onnxruntime.__version__


def test_lowering_does_not_change_the_program() -> None:
    program = edge(nn.Linear(4, 3), (torch.randn(2, 4),))
    before = str(program.graph)
    CpuLowering.preprocess(program, [])
    assert str(program.graph) == before


# ---- sharing ------------------------------------------------------------------------------------------------------


def many(programs: list[ExportedProgram]) -> list[PreprocessResult]:
    return CpuLowering.preprocess_multimethod({"forward": programs}, {"forward": [[] for _ in programs]})["forward"]


def test_a_weight_of_several_delegates_is_stored_once() -> None:
    shared, own = nn.Linear(64, 64), nn.Linear(64, 64)
    example = (torch.randn(2, 64),)
    programs = [edge(shared, example), edge(nn.Sequential(shared, nn.ReLU(), own), example)]
    first, second = many(programs)
    assert first.data_store_output is not None
    assert second.data_store_output is not None
    (key,) = first.data_store_output.pte_data
    assert list(second.data_store_output.pte_data) == [key]
    assert len(first.processed_bytes) < 64 * 64 * 4
    named = {k: d.data for k, d in second.data_store_output.pte_data.items()}
    backend = CpuBackend()
    handle = backend.init(BackendInitContext("forward", named), second.processed_bytes, [])
    out = np.empty((2, 64), np.float32)
    backend.execute(None, handle, [example[0].numpy(), out])  # type: ignore[arg-type]
    np.testing.assert_allclose(out, own(shared(example[0]).relu()).detach().numpy(), atol=1e-5)
    with pytest.raises(DelegateInvalidCompatibility, match=f"needs 16384 bytes of named data '{key}'.* has none"):
        backend.init(BackendInitContext("forward"), second.processed_bytes, [])
    with pytest.raises(DelegateInvalidCompatibility, match="has 3; copy or lower"):
        backend.init(BackendInitContext("forward", {key: b"abc"}), second.processed_bytes, [])


class Tied(nn.Module):
    """What tokens are embedded by is what scores the next one, as in Gemma and GPT-2."""

    def __init__(self, tied: bool = True, width: int = 64) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(512, width), nn.Linear(width, 512)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embed(ids)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_table_that_a_product_reads_too_is_stored_once(dtype: torch.dtype) -> None:
    ids = torch.arange(10)[None]
    sizes = []
    for tied in (True, False):
        torch.manual_seed(0)
        model = Tied(tied).to(dtype).eval()
        lowered = Lowered(edge(model, (ids,)))
        sizes.append(len(lowered.processed))
        got = torch.from_numpy(lowered(ids)[0].astype(np.float32))
        torch.testing.assert_close(got, model(ids).detach().float(), rtol=2e-2, atol=2e-2)
    table = 512 * 64 * dtype.itemsize
    assert sizes[0] < table + 16_000
    assert sizes[1] > 2 * table


def test_codes_that_a_product_reads_too_are_stored_once() -> None:
    ids = torch.arange(10)[None]
    quantized = delegraph.quantize(Tied(), args=(ids,), recipe="int4_weight_only", backends=["cpu"])
    lowered = delegraph.lower(quantized, backends=["cpu"])
    assert len(bytes(lowered)) < 512 * 64 * 0.75 + 16_000  # twice half a byte, and the scales, would be more
    got = delegraph.load(bytes(lowered))(ids.numpy())
    np.testing.assert_allclose(got, quantized.program.module()(ids).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [10, 20, "any"])
@pytest.mark.parametrize(("recipe", "int8_inputs"), [
    ("int8_dynamic", False), ("int8_weight_only", False), ("int8_weight_only", True),
])  # fmt: skip
def test_a_table_of_8_bits_that_a_product_reads_too_is_stored_once(
    recipe: str, int8_inputs: bool, rows: int | str
) -> None:
    """As rows that are turned when it is loaded; as codes of 8 bits, or of 4, of which rows are picked."""
    torch.manual_seed(0)
    ids = torch.arange(20 if rows == 20 else 10)[None]
    shapes = {1: torch.export.Dim("rows", min=1, max=16)} if rows == "any" else {}
    quantized = delegraph.quantize(Tied(), args=(ids,), recipe=recipe, backends=["cpu"], dynamic_shapes=(shapes,))
    lowered = delegraph.lower(quantized, backends=[("cpu", {"int8_inputs": int8_inputs})])
    assert len(bytes(lowered)) < 512 * 64 + 24_000
    run = delegraph.load(bytes(lowered))
    near = 1e-4 if (recipe, int8_inputs) == ("int8_weight_only", False) else 0.2  # of 40: what is multiplied is rounded
    for some in (ids, ids[:, :3] + 509) if rows == "any" else (ids, ids + 491):
        np.testing.assert_allclose(run(some.numpy()), quantized.program.module()(some).detach(), rtol=0, atol=near)
    for wrong in (-1, 512):
        with pytest.raises(InvalidArgument, match=f"holds {wrong}, but .* has no place {wrong}: it has 512 places"):
            run(np.where(ids.numpy() == 4, wrong, ids.numpy()))


@pytest.mark.parametrize("width", [60, 63])
def test_a_table_whose_rows_are_filled_up_for_the_product_stays_beside_it(width: int) -> None:
    ids = torch.tensor([[7]])  # of more rows the product is one of floats
    quantized = delegraph.quantize(Tied(width=width), args=(ids,), recipe="int8_weight_only", backends=["cpu"])
    lowered = delegraph.lower(quantized, backends=["cpu"])
    assert len(bytes(lowered)) > 2 * 512 * width
    got = delegraph.load(bytes(lowered))(ids.numpy())
    np.testing.assert_allclose(got, quantized.program.module()(ids).detach(), rtol=1e-4, atol=1e-4)


def test_a_single_delegate_keeps_its_weights() -> None:
    (result,) = many([edge(nn.Linear(64, 64), (torch.randn(2, 64),))])
    assert result.data_store_output is not None
    assert result.data_store_output.pte_data == {}
    assert len(result.processed_bytes) > 64 * 64 * 4


# ---- what is declined, and why ------------------------------------------------------------------------------------

aten = torch.ops.aten
X = torch.randn(2, 3, 8, 8)
I = torch.zeros(8, dtype=torch.int64)  # noqa: E741

DECLINED: dict[str, tuple[Any, tuple[torch.Tensor, ...], str]] = {
    "dtype_of_the_backend": (
        lambda t: t.reshape(-1), (torch.ones(2, 3, dtype=torch.uint16),), "uint16 is not supported by this backend",
    ),
    "dtype_of_the_operator": (torch.round, (torch.ones(3, dtype=torch.int64),), "not supported by this operator"),
    "complex": (torch.sin, (torch.ones(3, dtype=torch.complex64),), "no converter for aten.sin.default"),
    "empty": (lambda t: t.sum(0), (torch.ones(0, 3),), "a tensor is empty"),
    "no_converter": (torch.erfinv, (X,), "no converter for aten.erfinv.default"),
    "mask_behind_a_dim": (
        lambda t, m, v: aten.index_put(t, (None, m), v),
        (X[0, 0], X[0, 0, 0] > 0, torch.ones(8, int((X[0, 0, 0] > 0).sum()))),
        "a mask behind other dims",
    ),
    "mask_beside_an_index": (
        lambda t, m, i: t.index_put((m, i), torch.tensor(0.0)), (X[0, 0], X[0, 0, 0] > X[0, 0, 0].max() - 1e-6, I),
        "a mask beside other indices",
    ),
    "adaptive_places": (
        lambda t: F.adaptive_max_pool2d(t, 2, return_indices=True), (X,), r"its results \[1\] are used",
    ),
    "dilated_beyond_the_input": (
        lambda t: F.max_pool2d(t, 2, 5, dilation=2, ceil_mode=True), (X[:, :, :6, :6],), "reach beyond the input",
    ),
    "maximum_of_a_bag": (lambda w, i: aten._embedding_bag(w, i, i[:1], False, 2)[0], (X[0, 0], I), "the maximum"),
    "padded_bag": (
        lambda w, i: aten._embedding_bag(w, i, i[:1], False, 0, False, None, False, 0)[0], (X[0, 0], I), "pads",
    ),
    "cubic_samples": (
        lambda t, g: aten.grid_sampler_2d(t, g, 2, 1, False), (X, torch.rand(2, 2, 2, 2)), "beyond the image",
    ),
    "strides": (
        lambda t: torch.as_strided(t.permute(1, 0), (2, 2), (1, 1)), (X[0, 0],), "not contiguous",
    ),
    "ungrouped_experts": (
        aten._grouped_mm, (torch.ones(2, 8, 16).bfloat16(), torch.ones(2, 16, 8).bfloat16()),
        "not of rows",
    ),
    "size_by_a_scale": (
        lambda t: F.interpolate(t, scale_factor=1.3, mode="bilinear"), (torch.randn(1, 1, 10, 10),),
        "a scale of 1.3 gives another size",
    ),
    "norm_order": (lambda t: torch.linalg.vector_norm(t, 3), (X,), "norm of order 3"),
    "training_dropout": (
        lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5),
        (torch.randn(1, 2, 3, 4),),
        "dropout in training",
    ),
}  # fmt: skip


def exported(function: Any, args: tuple[torch.Tensor, ...], dynamic_shapes: Any = None) -> ExportedProgram:
    """Before decomposition: what the filter of `ops_to_not_decompose` is asked about."""
    return torch.export.export(Function(function), args, dynamic_shapes=dynamic_shapes)


@cache
def first_reasons(decomposed: bool) -> dict[str, str]:
    """The first reason against a node of each of `DECLINED`, all in one program."""
    cases = {name: case for name, case in DECLINED.items() if ("dropout" not in name) is decomposed}
    functions = Functions([function for function, *_ in cases.values()], [len(args) for _, args, _ in cases.values()])
    program = torch.export.export(functions, tuple(arg.clone() for _, args, _ in cases.values() for arg in args))
    program = program.run_decompositions({}) if decomposed else program
    whose = [name for name, (_, args, _) in cases.items() for _ in args]
    reasons: dict[str, str] = {}
    for node, reason in declined(program).items():
        for number in arguments_of(program, node):
            reasons.setdefault(whose[number], reason)
    return reasons


@pytest.mark.parametrize("name", DECLINED)
def test_reasons(name: str) -> None:
    assert re.search(DECLINED[name][2], first_reasons("dropout" not in name)[name])


def test_reasons_for_dynamic_shapes() -> None:
    dim = Dim("n", min=4, max=16)
    program = exported(lambda t: F.interpolate(t, scale_factor=1.7), (X,), (({2: dim},),))
    reasons = [TABLE.support(n) for n in program.graph.nodes if "upsample" in str(n.target)]
    assert reasons == ["a scale of 1.7 gives another size in single precision"]


def test_a_node_that_was_declined_is_refused_by_name_and_line() -> None:
    program = edge(Function(torch.erfinv), (X,))
    assert list(declined(program)) == ["aten_erfinv_default"]
    with pytest.raises(
        UnsupportedOperator, match=r"(?s)no converter for aten\.erfinv\.default.*node: aten_erfinv.*at:.*harness"
    ):
        CpuLowering.preprocess(program, [])


def test_a_graph_that_onnxruntime_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(preprocess, "create_session", refuse)
    with pytest.raises(PreprocessError, match=r"onnxruntime [\d.]+ refuses the converted graph: no such kernel"):
        CpuLowering.preprocess(edge(nn.Linear(4, 3), (torch.randn(2, 4),)), [])


def test_a_small_memory_directory_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container's 64 MB a model may have more; its files then go where temporary files go."""
    room = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room)
    asked = []
    make = tempfile.TemporaryDirectory

    def directory(**how: Any) -> Any:
        asked.append(how["dir"])
        return make(**how)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", directory)
    monkeypatch.setattr(preprocess.os, "access", lambda path, mode: True)
    Lowered(edge(nn.Linear(64, 64), (torch.randn(1, 64),)))
    assert asked == [None]


def test_partitioner_options() -> None:
    registry = PluginRegistry()
    registry.register("partitioners", "cpu", cpu_partitioner)
    assert registry.create("partitioners", "cpu", {"minimum_nodes": 3}).minimum_nodes == 3
    with pytest.raises(
        UnknownOption, match="partitioner 'cpu' has no option 'num_threads'; it has minimum_nodes, allow_trivial"
    ) as caught:
        registry.create("partitioners", "cpu", {"num_threads": 2})
    assert "given at load: delegraph.load(…, backend_options=…)" in str(caught.value)


def test_the_table_is_as_broad_as_it_says() -> None:
    assert len(TABLE) > 250
    program = torch.export.export(nn.Linear(4, 3), (torch.randn(2, 4),))
    kept, accepts = cpu_partitioner().ops_to_not_decompose(program)
    assert torch.ops.aten.linear.default in kept
    assert accepts is not None


def test_a_scalar_input_is_an_int() -> None:
    """Sizes are computed outside, and come in as Python integers."""
    dim = Dim("n", min=2, max=16)
    program = edge(Function(lambda t: t.sum(0) / t.shape[0]), (torch.ones(4, 3),), (({0: dim},),))
    lowered = Lowered(program)
    np.testing.assert_allclose(lowered(np.full((5, 3), 2.0, np.float32))[0], np.full(3, 2.0))
