"""How long quantizing MobileNetV2 takes, observer by observer: `python -m benchmarks.quantize [--stock]`.

A batch of one and eight of them; exporting the model is not counted, exporting what torchao made is. `--stock` adds
torchao's own histogram observer, whose search takes a minute or two.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.fx import GraphModule

import delegraph
from benchmarks.models import mobilenet_v2
from delegraph.aot import activation_spec, recipe_named, weight_spec

ANNOTATION = "quantization_annotation"


class StockHistogram:
    """Convolutions and linear layers, their values observed by torchao's histogram observer."""

    def __init__(self) -> None:
        from torchao.quantization.pt2e.observer import HistogramObserver

        recipe = recipe_named("int8")
        self._value = replace(activation_spec(recipe), observer_or_fake_quant_ctr=HistogramObserver)
        self._weight = weight_spec(recipe)

    def annotate(self, model: GraphModule) -> GraphModule:
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

        for node in model.graph.nodes:
            if node.target in (torch.ops.aten.conv2d.default, torch.ops.aten.linear.default):
                inputs = {node.args[0]: self._value, node.args[1]: self._weight}
                node.meta[ANNOTATION] = QuantizationAnnotation(inputs, self._value, _annotated=True)
        return model

    def validate(self, model: GraphModule) -> None:
        pass


def timed(name: str, program: ExportedProgram, batches: list[Any], **how: Any) -> None:
    start = perf_counter()
    report = delegraph.quantize(program, batches, **how).report.methods["forward"]
    print(f"{name:28} {perf_counter() - start:6.1f} s   {report.output_sqnr:5.1f} dB in the end")


def main() -> None:
    torch.manual_seed(0)
    model, args = mobilenet_v2()
    program = export(model, args)
    batches = [(torch.randn(1, 3, 224, 224),) for _ in range(8)]
    for observer in ("histogram", "minmax", "moving_average", "percentile"):
        timed(observer, program, batches, recipe=f"int8{{observer={observer}}}")
    timed("weights alone", program, batches, recipe="int8_weight_only")
    if "--stock" in sys.argv:
        timed("torchao's HistogramObserver", program, batches, quantizers=[StockHistogram()])


if __name__ == "__main__":
    main()
