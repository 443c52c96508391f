"""One operator as a .tflite file -> what LiteRT's reference kernels compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

TYPES: Final = {
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.int16): schema.TensorType.INT16,
    np.dtype(np.int32): schema.TensorType.INT32,
}


@dataclass
class Tensor:
    """A tensor of a graph; `values` where it is constant. Scales of one or of each channel, along `axis`."""

    shape: tuple[int, ...]
    dtype: Any
    scale: Any
    zero_point: int = 0
    values: NDArray[Any] | None = None
    axis: int = 0


def litert(operator: str, options: Any, inputs: list[Tensor], output: Tensor, *arrays: NDArray[Any]) -> NDArray[Any]:
    """The output of the builtin `operator`; `arrays` are those inputs that are not constant."""
    interpreter = Interpreter(
        model_content=model(operator, options, inputs, output),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def model(operator: str, options: Any, inputs: list[Tensor], output: Tensor) -> bytes:
    """The .tflite file of one operator."""
    whole, graph, code, call = schema.ModelT(), schema.SubGraphT(), schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, operator)
    code.version = 1
    whole.buffers, graph.tensors = [schema.BufferT()], []
    for one in [*inputs, output]:
        tensor, quantization = schema.TensorT(), schema.QuantizationParametersT()
        tensor.name, tensor.shape, tensor.type = f"t{len(graph.tensors)}", list(one.shape), TYPES[np.dtype(one.dtype)]
        quantization.scale = np.atleast_1d(np.asarray(one.scale, np.float32)).tolist()
        quantization.zeroPoint = [one.zero_point] * len(quantization.scale)
        quantization.quantizedDimension = one.axis
        tensor.quantization = quantization
        if one.values is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(one.values.tobytes(), np.uint8)
            tensor.buffer = len(whole.buffers)
            whole.buffers.append(buffer)
        graph.tensors.append(tensor)
    call.inputs, call.outputs = list(range(len(inputs))), [len(inputs)]
    if options is not None:
        call.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        call.builtinOptions = options
    graph.inputs = [index for index, one in enumerate(inputs) if one.values is None]
    graph.outputs, graph.operators = [len(inputs)], [call]
    whole.version, whole.operatorCodes, whole.subgraphs = 3, [code], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(whole.Pack(builder), b"TFL3")
    return bytes(builder.Output())
