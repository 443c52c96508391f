"""ExecuTorch's Llama (`examples/models/llama`), as its own source transformations leave it: on kernels, and on the CPU
backend as one delegate, prompt and single tokens on one cache."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import delegraph

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.filterwarnings("ignore"),  # those of ExecuTorch and torchao on themselves
]
CONTEXT, VOCABULARY = 32, 128
Model = torch.nn.Module


def of_llama(module: str) -> Any:
    """A module of ExecuTorch's example, which is not everywhere that these tests are collected."""
    return import_module(f"executorch.examples.models.llama.{module}")


def llama() -> Model:
    import_module("delegraph_executorch.extension.llm.custom_ops.custom_ops")  # registers `llama::*`
    torch.manual_seed(0)
    arguments = of_llama("model_args").ModelArgs(
        dim=64, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=VOCABULARY, hidden_dim=128, max_seq_len=CONTEXT,
        max_context_len=CONTEXT, use_kv_cache=True, enable_dynamic_shape=True, generate_full_logits=False,
    )  # fmt: skip
    model: Model = of_llama("llama_transformer").construct_transformer(arguments)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.08)
    return model.eval()


def _changed(module: str, name: str) -> Callable[[Model], Model]:
    def changed(model: Model) -> Model:
        return getattr(of_llama(f"source_transformation.{module}"), name)(model)  # type: ignore[no-any-return]

    return changed


def _weights(mode: str) -> Callable[[Model], Model]:
    def quantized(model: Model) -> Model:
        fp32 = import_module("executorch.extension.llm.export.builder").DType.fp32
        quantize = of_llama("source_transformation.quantize").quantize
        return quantize(model, mode, group_size=32, computation_dtype=fp32, checkpoint_dtype=fp32)  # type: ignore[no-any-return]

    return quantized


def _rows(mode: str) -> Callable[[Model], Model]:
    def changed(model: Model) -> Model:
        return of_llama("source_transformation.quantize").get_quant_embedding_transform(mode)(model)  # type: ignore[no-any-return]

    return changed


def _in_turn(*changes: Callable[[Model], Model]) -> Callable[[Model], Model]:
    def changed(model: Model) -> Model:
        for change in changes:
            model = change(model)
        return model

    return changed


CACHE = _changed("custom_kv_cache", "replace_kv_cache_with_custom_kv_cache")
QUANTIZED_CACHE = _changed("custom_kv_cache", "replace_kv_cache_with_quantized_kv_cache")
ATTENTION = _changed("sdpa", "replace_sdpa_with_custom_op")
QUANTIZED_ATTENTION = _changed("sdpa", "replace_sdpa_with_quantized_sdpa")

FORMS: dict[str, Callable[[Model], Model]] = {
    "as it is": _in_turn(),
    "simple attention": _changed("sdpa", "replace_sdpa_with_simple_sdpa"),
    "native RMS norm": _changed("rms_norm", "replace_rms_norm_with_native_rms_norm"),
    "4 bits, values of 8": _weights("8da4w"),
    "8 bits": _weights("int8"),
    "8 bits, values of 8": _weights("8da8w"),
    "4 bits": _weights("4w"),
    "embeddings of 4 bits": _rows("4,32"),
    "embeddings of 8 bits": _rows("8,0"),
    "its own operators": _in_turn(CACHE, ATTENTION),
    "its own operators, 4 bits, values of 8": _in_turn(_weights("8da4w"), CACHE, ATTENTION),
    "a quantized cache": _in_turn(QUANTIZED_CACHE, ATTENTION),
    "a quantized cache, and attention": _in_turn(QUANTIZED_CACHE, ATTENTION, QUANTIZED_ATTENTION),
}

SIZES = {"as it is": 400_000, "8 bits": 200_000, "8 bits, values of 8": 210_000, "4 bits": 145_000}
"""At most so many bytes on `cpu`, where there are 98,000 weights, a third of them in the embedding. Rounding values has
operators of its own; digests, contracts, and what debugging needs (names, modules, lines) are some 8,000 bytes of each
file."""


def exported(form: str) -> torch.export.ExportedProgram:
    """For as many tokens as there are."""
    example = torch.randint(0, VOCABULARY, (1, 5)), {"input_pos": torch.tensor([0])}
    dynamic = {1: torch.export.Dim("tokens", max=CONTEXT - 1)}, {"input_pos": {0: 1}}
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]), torch.no_grad():
        return torch.export.export(FORMS[form](llama()), example, dynamic_shapes=dynamic, strict=True)


def calls() -> list[tuple[torch.Tensor, int]]:
    """Tokens, and the position of the first."""
    return [(torch.randint(0, VOCABULARY, (1, count)), start) for count, start in ((5, 0), (1, 5), (3, 6), (1, 9))]


def off(got: Any, wanted: Any) -> float:
    return float(np.abs(np.asarray(got) - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("form", FORMS)
def test_a_llama_of_executorch(form: str) -> None:
    program = exported(form)
    runs: dict[str, Any] = {}
    for name, backends in (("kernels", []), ("cpu", ["cpu"])):
        lowered = delegraph.lower(program, backends=backends)
        assert name == "kernels" or not lowered.report.methods["forward"].leftovers
        assert name == "kernels" or len(bytes(lowered)) < SIZES.get(form, 450_000)
        runs[name] = delegraph.load(bytes(lowered))
    reference = program.module()
    # where values are rounded, one in the middle of two integers may become the other one
    within = 0.02 if "values" in form or "cache" in form else 1e-5
    for tokens, start in calls():
        wanted = reference(tokens, {"input_pos": torch.tensor([start])}).detach().numpy()
        for name, run in runs.items():
            assert off(run(tokens.numpy(), {"input_pos": np.array([start])}), wanted) < within, (name, start)


@pytest.mark.parametrize("form", ["its own operators", "a quantized cache", "a quantized cache, and attention"])
def test_files_of_both_run_on_both(form: str) -> None:
    import_module("executorch.kernels.quantized")
    exir = import_module("executorch.exir")
    bindings = import_module("executorch.extension.pybindings.portable_lib")
    passes = import_module("executorch.exir.passes.sym_shape_eval_pass")
    program = exported(form)
    sizes = exir.ExecutorchBackendConfig(sym_shape_eval_pass=passes.ConstraintBasedSymShapeEvalPass())
    edge = exir.to_edge(program, compile_config=exir.EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True))
    files = {"of ExecuTorch": edge.to_executorch(sizes).buffer, "of Delegraph": bytes(delegraph.lower(program))}
    given = calls()
    reference = program.module()
    wanted = [reference(tokens, {"input_pos": torch.tensor([at])}).detach().numpy() for tokens, at in given]
    for name, content in files.items():
        here = delegraph.load(content)
        there = bindings._load_for_executorch_from_buffer(content)
        for (tokens, at), logits in zip(given, wanted, strict=True):
            position = torch.tensor([at])
            assert off(here(tokens.numpy(), {"input_pos": position.numpy()}), logits) < 0.02, name
            assert off(there.forward((tokens, position))[0].clone().numpy(), logits) < 0.02, name
