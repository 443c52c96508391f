"""The backends whose delegates are compared with torch, each as a record: its table, and how it runs a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray
from tests.kernels.opinfo.deviations import OF_CPU
from tests.kernels.opinfo.results import FOLDER

from delegraph.aot.authoring import ConverterTable
from delegraph.interfaces import BackendInitContext
from delegraph_cpu.aot.convert import FusingGraph
from delegraph_cpu.aot.graph import TABLE as OF_ONNXRUNTIME
from delegraph_cpu.runtime.ort_values import as_array, ort_value
from delegraph_cpu.sessions import create_session
from delegraph_onnx.convert import ConvertedModel
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_openvino.aot.lowering import blob_of
from delegraph_openvino.aot.rows import OpenVinoConverterGraph
from delegraph_openvino.aot.target import TABLE as OF_OPENVINO
from delegraph_openvino.runtime.backend import OpenVinoBackend
from delegraph_openvino.runtime.tensors import numpy_dtype

__all__ = ["BACKENDS", "CPU", "ROOT", "Backend"]

ROOT: Final = Path(__file__).parents[3]

Array = NDArray[Any]


@dataclass(frozen=True)
class Backend:
    """A backend on an engine that reads ONNX.

    `name` is what users write, `title` what pages call it. `table` has the operators that it takes, `builder` makes an
    empty graph, and `run(graph, model, inputs)` gives the outputs of what was made in it. `tests` are the folders whose
    tests say something of its operators. `deviations`: (operator, dtype) -> why it differs from torch.
    """

    name: str
    title: str
    table: ConverterTable
    builder: Callable[[], GraphBuilder]
    run: Callable[[Any, ConvertedModel, Sequence[Array]], list[Array]]
    tests: Sequence[str]
    deviations: Mapping[tuple[str, str], str]

    @property
    def results(self) -> Path:
        """Where a run leaves its results, one file an entry."""
        return FOLDER.with_name(f"opinfo-{self.name}")

    @property
    def page(self) -> Path:
        """The page that is made of them."""
        return ROOT / "docs" / f"operators-{self.name}.md"

    @cached_property
    def whole(self) -> frozenset[Any]:
        """What it keeps from being decomposed."""
        return frozenset(self.table.kept_whole)


def _on_onnxruntime(graph: GraphBuilder, model: ConvertedModel, inputs: Sequence[Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = create_session(ir.to_proto(model.model).SerializeToString(), options)
    binding = session.io_binding()
    for info, array in zip(model.inputs, inputs, strict=True):
        binding.bind_ortvalue_input(info.name, ort_value(array))
    for info in model.outputs:
        binding.bind_output(info.name)
    session.run_with_iobinding(binding)
    results = zip(binding.get_outputs(), model.outputs, strict=True)
    return [as_array(value, info.dtype).copy() for value, info in results]


def _on_openvino(graph: OpenVinoConverterGraph, model: ConvertedModel, inputs: Sequence[Array]) -> list[Array]:
    backend = OpenVinoBackend()
    context = BackendInitContext("forward", runtime_specs={"num_threads": 1})
    handle = backend.init(context, blob_of(model, graph), [])
    outputs = [np.zeros(info.shape, numpy_dtype(info.dtype)) for info in model.outputs]
    backend.execute(None, handle, [*inputs, *outputs])  # type: ignore[arg-type]  # all sizes are known
    return outputs


CPU: Final = Backend(
    "cpu",
    "CPU",
    OF_ONNXRUNTIME,
    FusingGraph,
    _on_onnxruntime,
    ("backends/cpu/tests", "tests/models", "tests/kernels"),
    OF_CPU,
)

OPENVINO: Final = Backend(
    "openvino",
    "OpenVINO",
    OF_OPENVINO,
    OpenVinoConverterGraph,
    _on_openvino,
    ("backends/openvino/tests", "tests/models", "tests/kernels"),
    {
        ("aten::scaled_dot_product_attention", "float32"): "OpenVINO's exponentials: up to 2e-5 off",
        ("aten::add.out", "complex64"): "torch multiplies what it adds by 1 + 0i, which makes NaN of infinity",
    },
)

BACKENDS: Final = {backend.name: backend for backend in (CPU, OPENVINO)}
"""By their names."""
