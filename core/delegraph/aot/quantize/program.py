"""ATen program, quantizers, batches -> ATen program with `quantized_decomposed` calls and quantized weights.

    before                          after
        y = linear(x, w, b)             w' = dequantize(w_int8, …)
                                        x' = dequantize(quantize(x, …), …)
                                        y  = linear(x', w', b)

The way is torchao's (`torchao/quantization/pt2e/quantize_pt2e.py`): a quantizer annotates, observers are inserted,
batches are run, observers become calls. Before it mutation becomes data flow, while composite operators stay whole:
torchao puts an observer where a value is made, and what is written into a buffer afterwards would pass it by.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.quantize.calibrate import calibrate
from delegraph.aot.quantize.composed import ComposedQuantizer
from delegraph.aot.quantize.reexport import exported_again, positional_inputs
from delegraph.aot.quantize.request import Quantization
from delegraph.aot.quantize.torchao import pt2e
from delegraph.errors import DelegraphError, LoweringError

__all__ = ["quantize_program"]


def quantize_program(method: str, program: ExportedProgram, how: Quantization) -> ExportedProgram:
    """A new program; `program` keeps its weights and what its buffers hold.

    Raises `LoweringError` naming the quantizer or the batch that is at fault.
    """
    torchao = pt2e()
    module = functionalize(program, {}, only=lambda _node: False).module()
    assert isinstance(module, GraphModule)
    buffers = dict(module.named_buffers(remove_duplicate=False))
    _set_buffers(module, _clones(buffers))  # calibration counts, and fills caches
    try:
        prepared = torchao.prepare_pt2e(module, ComposedQuantizer(method, how.quantizers))
        calibrate(method, prepared, positional_inputs(program), how.batches)
        _set_buffers(prepared, _clones(buffers))  # conversion runs what it takes for constant
        converted = torchao.convert_pt2e(prepared)
    except DelegraphError:
        raise
    except Exception as cause:
        raise LoweringError(
            f"method {method!r}: torchao could not follow the annotations of {', '.join(how.quantizers)}:"
            f" {type(cause).__name__}: {cause}"
        ) from cause
    _set_buffers(converted, buffers)
    _drop_unused(converted, program)
    return exported_again(method, converted, program)


def _clones(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies; what is one tensor under two names stays one."""
    copies: dict[int, torch.Tensor] = {}
    return {name: copies.setdefault(id(tensor), tensor.clone()) for name, tensor in tensors.items()}


def _set_buffers(module: GraphModule, buffers: Mapping[str, torch.Tensor]) -> None:
    """Let the buffers of these names be these tensors, so far as they still exist: some are folded into weights."""
    submodules = dict(module.named_modules(remove_duplicate=False))
    for name, tensor in buffers.items():
        owner, _, attribute = name.rpartition(".")
        if owner in submodules and attribute in submodules[owner]._buffers:
            submodules[owner]._buffers[attribute] = tensor


def _drop_unused(module: GraphModule, program: ExportedProgram) -> None:
    """Take out the weights in float that no call reads any more."""
    read = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    submodules = dict(module.named_modules(remove_duplicate=False))
    for name in program.state_dict:
        owner, _, attribute = name.rpartition(".")
        if name not in read and owner in submodules:
            submodules[owner]._parameters.pop(attribute, None)
            submodules[owner]._buffers.pop(attribute, None)
