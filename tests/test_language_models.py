"""`transformers`' own recipes lower as they are, and say what eager mode says; the guide has prefill and decode."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import delegraph
from delegraph.aot import ExecutorchBackendConfig, Lowered
from delegraph.program import deserialize_program, serialize_flat_tensor
from delegraph_cpu.blob import unpack

pytestmark = pytest.mark.models

PROMPT = [3, 14, 15, 9]


@pytest.fixture(scope="module")
def language_model() -> Any:
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        cache_config={"batch_size": 1, "max_cache_len": 32},
        bos_token_id=0,
        pad_token_id=0,
    )
    return model


@pytest.fixture(scope="module")
def recipe(language_model: Any) -> torch.export.ExportedProgram:
    return exported(language_model)


def exported(model: Any) -> torch.export.ExportedProgram:
    from transformers.integrations.executorch import convert_and_export_with_cache

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        return convert_and_export_with_cache(model)


@pytest.mark.parametrize("backend", ["portable", "cpu"])
def test_a_model_exported_with_its_cache_says_what_eager_says(
    backend: str, language_model: Any, recipe: torch.export.ExportedProgram
) -> None:
    wanted = language_model.generate(
        torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, cache_implementation=None
    )[0].tolist()
    session = delegraph.load(bytes(delegraph.lower(recipe, backends=[] if backend == "portable" else [backend])))

    def step(token: int, position: int) -> int:
        logits = session(input_ids=np.array([[token]]), cache_position=np.array([position]))
        return int(logits[0, -1].argmax())

    said = [step(token, position) for position, token in enumerate(PROMPT)][-1:]
    while len(said) < 12:
        said.append(step(said[-1], len(PROMPT) + len(said) - 1))
    assert PROMPT + said == wanted
    assert session.state["cumulative_length_0"] == len(PROMPT) + 11


# ---- weights in files ---------------------------------------------------------------------------------------------


def lowered(program: torch.export.ExportedProgram, recipe: str, external: bool) -> Lowered:
    made: Any = program
    if recipe != "float":
        made = delegraph.quantize({"forward": program}, recipe=recipe, backends=["cpu"])
    config = ExecutorchBackendConfig(external_constants=external)
    return delegraph.lower(made, backends=["cpu"], config=config)


def logits(made: Lowered, data: list[bytes]) -> np.ndarray[Any, Any]:
    session = delegraph.load(bytes(made), data_path=data or None)
    steps = [session(input_ids=np.array([[t]]), cache_position=np.array([i])) for i, t in enumerate(PROMPT)]
    return np.concatenate(steps)


def operators(made: Lowered) -> list[str]:
    program = deserialize_program(bytes(made))
    graphs = (onnx.ModelProto.FromString(bytes(unpack(data).graph)).graph for data in program.delegate_data)
    return sorted(node.op_type for graph in graphs for node in graph.node if node.op_type in KERNELS)


KERNELS = ("GroupQueryAttention", "MatMulNBits", "DynamicQuantizeMatMul")


@pytest.mark.parametrize("kind", ["float", "int8_dynamic", "int4_weight_only"])
def test_weights_in_a_file_are_swapped_and_computed_on_as_those_in_the_program(kind: str, language_model: Any) -> None:
    """Attention on the cache, products of integers and of codes: what depends on the file is computed at load."""
    tuned = copy.deepcopy(language_model)
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.mul_(1.1)
    within = lowered(exported(language_model), kind, external=False)
    outside, other = (lowered(exported(model), kind, external=True) for model in (language_model, tuned))
    assert operators(outside) == operators(within)
    assert "GroupQueryAttention" in operators(outside)
    files, others = (
        [serialize_flat_tensor(data) for data in made.program.tensor_data.values()] for made in (outside, other)
    )
    largest = np.abs(logits(within, [])).max()
    np.testing.assert_allclose(logits(outside, files), logits(within, []), atol=1e-4 * largest)
    np.testing.assert_array_equal(logits(outside, others), logits(other, others))
    assert np.abs(logits(outside, others) - logits(outside, files)).max() > 1e-2 * largest
