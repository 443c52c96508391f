"""An ONNX model -> its outputs, by onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx.reference import ReferenceEvaluator

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CompileSpec,
)


class AcmeOnnxBackend(BackendInterface):
    def init(
        self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]
    ) -> ReferenceEvaluator:
        try:
            return ReferenceEvaluator(onnx.load_model_from_string(bytes(processed)))
        except DecodeError as error:
            raise DelegateInvalidCompatibility(f"these bytes are no ONNX model: {error}") from error

    def execute(self, context: BackendExecutionContext, handle: ReferenceEvaluator, args: Sequence[Argument]) -> None:
        names = handle.input_names
        results = handle.run(None, {name: np.asarray(arg) for name, arg in zip(names, args, strict=False)})
        for out, result in zip(args[len(args) - len(results) :], results, strict=True):
            assert isinstance(out, np.ndarray)
            target = context.resize(out, np.shape(result)) if out.shape != np.shape(result) else out
            np.copyto(target, result)
