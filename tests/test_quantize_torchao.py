"""Models that torchao's `quantize_` went over lower as they are: what they compute, what the file takes, what runs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torchao.quantization as ao
from torch import nn
from torch.export import Dim
from torchao.quantization.quant_primitives import MappingType, dequantize_affine
from torchao.utils import TorchAOBaseTensor

import delegraph
from delegraph.aot import EdgeCompileConfig, ExecutorchBackendConfig
from delegraph.aot.authoring import as_array
from delegraph.aot.quantize.torchao_weights import with_plain_weights

pytestmark = [pytest.mark.models, pytest.mark.long]

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 128), nn.Linear(128, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())  # type: ignore[no-any-return]


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


X = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
DYNAMIC = ({0: Dim("batch", max=16)},)
FLOAT_NBYTES = 4 * (256 * 128 + 128 * 64)
GROUPS, INT4 = ao.PerGroup(32), torch.int4

CONFIGS: dict[str, tuple[Any, float]] = {  # and the share of float's bytes that the whole file may take
    "int8": (ao.Int8WeightOnlyConfig(), 0.30),
    "int8 of a tensor": (ao.Int8WeightOnlyConfig(granularity=ao.PerTensor()), 0.30),
    "int8 of groups": (ao.Int8WeightOnlyConfig(granularity=GROUPS), 0.33),
    "int8 x int8": (ao.Int8DynamicActivationInt8WeightConfig(), 0.32),
    "int8 with zero point x int8": (
        ao.Int8DynamicActivationInt8WeightConfig(act_mapping_type=MappingType.ASYMMETRIC),
        0.36,
    ),
    "int8 x int4": (ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=INT4, weight_granularity=GROUPS), 0.22),
    "int4": (ao.IntxWeightOnlyConfig(weight_dtype=INT4, granularity=GROUPS), 0.20),
    "int4 with zero points": (
        ao.IntxWeightOnlyConfig(weight_dtype=INT4, granularity=GROUPS, mapping_type=MappingType.ASYMMETRIC),
        0.21,
    ),
    "int6": (ao.IntxWeightOnlyConfig(weight_dtype=torch.int6, granularity=ao.PerAxis(0)), 0.30),
    "float8": (ao.Float8WeightOnlyConfig(), 0.30),
}


@pytest.mark.parametrize(("config", "share"), CONFIGS.values(), ids=CONFIGS)
def test_a_quantized_model_lowers_as_it_is(config: Any, share: float) -> None:
    model = net()
    ao.quantize_(model, config)
    lowered = delegraph.lower(model, (X,), dynamic_shapes=DYNAMIC)
    assert len(bytes(lowered)) < share * FLOAT_NBYTES
    report = str(lowered.report)
    assert "access_subclass_inner_tensor" not in report
    got, wanted = np.asarray(delegraph.load(bytes(lowered))(X.numpy())), model(X).detach().numpy()
    np.testing.assert_allclose(got, wanted, atol=0.005 * np.abs(wanted).max())  # a step of a value, where it is a tie


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("config", [config for config, _ in CONFIGS.values()], ids=CONFIGS)
def test_models_of_half_precision_too(config: Any, dtype: torch.dtype, backends: list[str]) -> None:
    """As language models come: values and scales of 16 bits around the codes."""
    model, x = net().to(dtype), X.to(dtype)
    ao.quantize_(model, config)
    lowered = delegraph.lower(model, (x,), backends=backends, dynamic_shapes=DYNAMIC)
    assert len(bytes(lowered)) < 0.45 * FLOAT_NBYTES
    got = torch.tensor(np.asarray(delegraph.load(bytes(lowered))(as_array(x))).astype(np.float32))
    wanted = model(x).float()
    error = (got - wanted).norm() / wanted.norm()
    # Their roundings: a delegate has fewer of them, so that a value halfway between two codes may get the other.
    assert error < (0.02 if dtype == torch.bfloat16 else 0.01), error


@pytest.mark.parametrize("shape", [(3, 256), (2, 20, 256)], ids=str)
@pytest.mark.parametrize("name", ["int8 x int8", "int8 with zero point x int8"])
def test_products_of_integers_unfold_nothing_on_cpu(name: str, shape: tuple[int, ...]) -> None:
    model, x = net(), torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    ao.quantize_(model, CONFIGS[name][0])
    lowered = delegraph.lower(model, (x,), backends=["cpu"])
    assert len(bytes(lowered)) < 0.36 * FLOAT_NBYTES
    got, wanted = np.asarray(delegraph.load(bytes(lowered))(x.numpy())), model(x).detach().numpy()
    np.testing.assert_allclose(got, wanted, atol=0.01 * np.abs(wanted).max())  # a value halfway between two codes


def test_programs_and_settings_of_all_kinds() -> None:
    """An exported program, without folding, and by the stages."""
    model = net()
    ao.quantize_(model, ao.Int8WeightOnlyConfig())
    wanted, program = model(X).detach().numpy(), torch.export.export(model, (X,))
    plain = ExecutorchBackendConfig(do_const_prop=False)
    for made in (
        delegraph.lower(program, config=plain).program,
        delegraph.to_edge(program, compile_config=EdgeCompileConfig()).to_executorch(),
        delegraph.to_edge_transform_and_lower({"forward": program}).to_executorch(),
    ):
        np.testing.assert_allclose(np.asarray(delegraph.load(made.buffer)(X.numpy())), wanted, atol=1e-5)


def test_what_is_preserved_stays_as_torchao_has_it() -> None:
    model = net()
    ao.quantize_(model, ao.Int8WeightOnlyConfig())
    program = torch.export.export(model, (X,))
    for preserved, products in (((), aten.linear.default), ((aten.mm.default,), aten.mm.default)):
        plain = with_plain_weights("forward", program, dict.fromkeys(preserved))
        targets = [node.target for node in plain.graph.nodes]
        assert targets.count(products) == 2 and not {aten.linear.default, aten.mm.default} - {products} & {*targets}
        with torch.no_grad():
            torch.testing.assert_close(plain.module()(X), model(X))


def test_the_rest_is_quantized_by_a_recipe() -> None:
    model = net()
    ao.quantize_(
        model, ao.IntxWeightOnlyConfig(weight_dtype=INT4, granularity=GROUPS), lambda _m, name: name == "first"
    )
    quantized = delegraph.quantize(model, [(X,)], recipe={"second": "int8_weight_only", "default": "float"})
    assert len(bytes(delegraph.lower(quantized))) < 0.22 * FLOAT_NBYTES
    assert {str(t.dtype) for t in quantized.program.state_dict.values() if t.ndim == 2} == {"torch.int8", "torch.uint8"}


def test_embeddings_of_four_bits() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(300, 64), nn.Linear(64, 8)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(tokens))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model, tokens = Words().eval(), torch.tensor([[1, 5, 299]])
    config = ao.IntxWeightOnlyConfig(weight_dtype=INT4, granularity=GROUPS, mapping_type=MappingType.ASYMMETRIC)
    ao.quantize_(model, config, lambda module, _name: isinstance(module, nn.Embedding))
    lowered = delegraph.lower(model, (tokens,), dynamic_shapes=({1: Dim("words", max=64)},))
    assert len(bytes(lowered)) < 0.3 * 4 * (300 * 64 + 64 * 8)
    assert "dequantize" not in str(lowered.edge.exported_program().graph)  # not of a whole table in each run
    got = np.asarray(delegraph.load(bytes(lowered))(tokens.numpy()))
    np.testing.assert_allclose(got, model(tokens).detach().numpy(), atol=1e-5)


class Unsigned(TorchAOBaseTensor):  # type: ignore[misc]  # torchao has no types
    """A weight as torchao's classes are, whose codes are 0 to `most`, with a zero point for each group or none."""

    tensor_data_names: ClassVar = ["qdata", "scale"]
    optional_tensor_data_names: ClassVar = ["zero_point"]
    tensor_attribute_names: ClassVar = ["most"]

    def __new__(cls, qdata: torch.Tensor, scale: torch.Tensor, most: int, zero_point: Any = None) -> Unsigned:
        made: Unsigned = torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=torch.float32)
        return made

    def __init__(self, qdata: torch.Tensor, scale: torch.Tensor, most: int, zero_point: Any = None) -> None:
        self.qdata, self.scale, self.zero_point, self.most = qdata, scale, zero_point, most

    def dequantize(self) -> torch.Tensor:
        block = [1, self.qdata.shape[1] // self.scale.shape[1]]
        made: torch.Tensor = dequantize_affine(
            self.qdata, block, self.scale, self.zero_point, torch.uint8, 0, self.most, output_dtype=torch.float32
        )
        return made


@Unsigned.implements([aten.linear.default])
@Unsigned.implements_torch_function([nn.functional.linear])
def _linear(_func: Any, _types: Any, args: Any, _kwargs: Any) -> torch.Tensor:
    return nn.functional.linear(args[0], args[1].dequantize(), *args[2:])


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
@pytest.mark.parametrize("zeros", [False, True], ids=["no zero points", "zero points"])
@pytest.mark.parametrize(("most", "nbytes"), [(15, 64 * 128), (255, 64 * 256)])
def test_unsigned_codes(most: int, nbytes: int, zeros: bool, backends: list[str]) -> None:
    """Of four bits two to a byte; of eight they are stored as signed ones."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, most + 1, (64, 256), dtype=torch.uint8, generator=generator)
    points = torch.randint(0, most + 1, (64, 8), generator=generator).to(torch.int32) if zeros else None
    model = nn.Sequential(nn.Linear(256, 64, bias=False))
    model[0].weight = nn.Parameter(Unsigned(codes, torch.rand(64, 8, generator=generator), most, points), False)
    quantized = delegraph.quantize(model, args=(X,), recipe="float")
    kind = "packed" if most == 15 else "int8"
    assert quantized.program.state_dict[f"0.weight_{kind}"].nbytes == nbytes
    lowered = delegraph.lower(quantized, backends=backends)
    got, wanted = np.asarray(delegraph.load(bytes(lowered))(X.numpy())), model(X).numpy()
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


def test_constants_are_named_after_the_weights_and_each_is_kept_once() -> None:
    """So that patterns choose them; what torchao held is in no program."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(256, 256, bias=False), nn.Linear(256, 64, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.body(x)))  # type: ignore[no-any-return]

    model = Twice().eval()
    config = ao.IntxWeightOnlyConfig(weight_dtype=INT4, granularity=GROUPS, mapping_type=MappingType.ASYMMETRIC)
    ao.quantize_(model, config)
    quantized = delegraph.quantize(model, args=(X,), recipe="float")
    parts = ("", "_scales", "_zero_points")
    assert set(quantized.program.state_dict) == {f"{m}.weight_packed{p}" for m in ("body", "head") for p in parts}
    apart = ExecutorchBackendConfig(external_constants={"head.weight*": "head"})
    lowered = delegraph.lower(model, (X,), config=apart)
    (data,) = lowered.program.tensor_data.values()
    assert set(data.named_data) == {f"head.weight_packed{part}" for part in parts}
