"""Quantizers: models keep their results, and quantized ones can be lowered and run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from torch.export import ExportedProgram

import delegraph
from delegraph_testkit.bench import Bench
from delegraph_testkit.lowering import expected_calls, lowered_onto, quantized
from delegraph_testkit.models import Example, example
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.outcomes import Declined
from delegraph_testkit.running import check_call

__all__ = ["annotates_and_keeps_results", "quantizing_is_repeatable", "what_is_quantized_runs"]

_LEAST_SQNR: Final = 10.0
"""dB of signal over quantization noise. 8 bits give some 30 on these models; below 10 a model is of no use."""


def annotates_and_keeps_results(bench: Bench, model: str) -> str:
    """Something of the model is quantized, and its results are those of the float model with some noise."""
    source = example(model)
    calls, floats = expected_calls(source, _quantized(bench, source)), expected_calls(source)
    pairs = [pair for a, b in zip(calls, floats, strict=True) for pair in zip(a.expected, b.expected, strict=True)]
    noise = sum(float(np.square(array - reference).sum()) for array, reference in pairs)
    signal = sum(float(np.square(reference).sum()) for _, reference in pairs)
    sqnr = 10 * float(np.log10(signal / noise)) if noise else float("inf")
    assert sqnr >= _LEAST_SQNR, f"{model}: the signal is {sqnr:.1f} dB over the noise, and {_LEAST_SQNR:g} is the least"
    return f"{model}: {sqnr:.1f} dB"


def quantizing_is_repeatable(bench: Bench, model: str) -> None:
    """Quantized twice, the model gives the same results."""
    source = example(model)
    once, again = (list(expected_calls(source, _quantized(bench, source))) for _ in range(2))
    same = [
        a.tobytes() == b.tobytes()
        for first, second in zip(once, again, strict=True)
        for a, b in zip(first.expected, second.expected, strict=True)
    ]
    assert all(same), f"{model} quantized twice is two different models"


def what_is_quantized_runs(bench: Bench, model: str) -> None:
    """The quantized model runs on portable kernels, with the results that it has in eager mode."""
    source = example(model)
    programs = _quantized(bench, source)
    module = delegraph.load(bytes(lowered_onto(source, [], programs)), kernels=kernel_order())
    for call in expected_calls(source, programs):
        check_call(bench, call, module["forward"].method.execute(call.inputs), model)


def _quantized(bench: Bench, source: Example) -> Mapping[str, ExportedProgram]:
    """Raises `Declined` if the quantizer leaves all of the model in float."""
    programs = quantized(source, bench.subject.name)
    targets = [str(node.target) for program in programs.values() for node in program.graph.nodes]
    if not any("quantize" in target for target in targets):
        raise Declined("it leaves all of the model in float")
    return programs
