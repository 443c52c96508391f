"""A partition's edge program -> the blob that `delegraph_providers.runtime` executes: a binary for the named device, or
a graph that the provider compiles at load."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Final

import onnx
import onnx_ir as ir
from torch.export import ExportedProgram

from delegraph.aot import ResolvedSignature
from delegraph.aot.authoring import as_array
from delegraph.errors import PreprocessError
from delegraph.interfaces import BackendDetails, CompileSpec, PreprocessResult
from delegraph.plugins import PluginWarning
from delegraph_cpu.aot.compiled.packing import Compiled, laid_beside, packed, state_records
from delegraph_onnx.convert import ConvertedModel
from delegraph_onnx.indexed import indexed_inputs
from delegraph_providers.aot.asking import answer_of, converted, model_bytes
from delegraph_providers.aot.assigning import graph_of
from delegraph_providers.aot.compiling import compiled
from delegraph_providers.blob import BLOB_VERSION, Blob, CompiledNode, format_of, pack
from delegraph_providers.engine import ProviderFailed, version_of
from delegraph_providers.graph_blob import GraphBlob
from delegraph_providers.options import QnnOptions, graph_options
from delegraph_providers.providers import (
    MIGRAPHX,
    MLX,
    OPENVINO_EP,
    PROVIDER,
    QNN,
    TENSORRT_RTX,
    WEBGPU,
    WINDOWSML,
    Provider,
)

__all__ = [
    "AnyLowering",
    "GraphLowering",
    "MiGraphXLowering",
    "MlxLowering",
    "OpenVinoLowering",
    "QnnLowering",
    "TensorRtRtxLowering",
    "WebGpuLowering",
    "WindowsMlLowering",
]


class QnnLowering(BackendDetails):
    """Compiles partitions for Qualcomm's HTP."""

    blob_version: ClassVar[int] = BLOB_VERSION

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert and compile the partition. The same partition may give another binary: the provider's compiler is
        not deterministic.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, `PreprocessError` if the
        provider does not take all of the graph, and `NotSupported` if it is not installed.
        """
        options = QnnOptions.of_compile_specs(compile_specs)
        model = converted(edge_program, QNN, options)
        context = _compiled(QNN, model_bytes(model), options)
        settings = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in context.attribute}
        blob = Blob(
            version_of(QNN),
            settings.get("ep_sdk_version", b"").decode(),
            model.inputs,
            model.outputs,
            tuple(context.input),
            tuple(context.output),
            settings["ep_cache_context"],
            tuple(_nodes(model)),
        )
        lost = sorted({tensor.name for tensor in model.outputs} - {*blob.written})
        if lost:
            raise PreprocessError(f"{blob.provider} takes {', '.join(lost)} for constant, and gives no such outputs")
        return PreprocessResult(pack(blob, QNN), dict(model.debug_handles))


def _nodes(model: ConvertedModel) -> Iterator[CompiledNode]:
    known = {tensor.name for tensor in model.inputs}
    for node in model.model.graph:
        inputs = (str(value.name) for value in node.inputs if value is not None)
        yield CompiledNode(str(node.name), node.op_type, tuple(name for name in inputs if name in known))
        known |= {str(value.name) for value in node.outputs}


def _compiled(provider: Provider, graph: bytes, options: QnnOptions) -> onnx.NodeProto:
    """The node that holds the binary which the provider makes of a graph."""
    try:
        made = compiled(provider, graph, options.of_provider())
    except ProviderFailed as error:
        raise PreprocessError(f"{version_of(provider)} does not compile the partition: {error}") from error
    if made.left or len(made.parts) != 1:
        left = ", ".join(sorted(node.op_type for node in made.left)) or "nothing"
        raise PreprocessError(
            f"{version_of(provider)} does not take the partition whole: {len(made.parts)} parts, and {left} left"
        )
    return made.parts[0]


class GraphLowering(BackendDetails):
    """Converts partitions for a provider that compiles at load: the base of a class for each."""

    provider: ClassVar[Provider]
    blob_version: ClassVar[int] = BLOB_VERSION
    takes_external_weights: ClassVar[bool] = True
    shares_state: ClassVar[bool] = True

    @classmethod
    def preprocess(cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Convert the partition, ask the provider where it is here, and pack the graph.

        Raises `UnsupportedOperator` for a node that the partitioner should not have claimed, and `PreprocessError` if
        the provider does not take all of the graph.
        """
        results = cls.preprocess_multimethod({"": [edge_program]}, {"": [compile_specs]})
        return results[""][0]

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """As `preprocess`, but weights that several partitions have go into the named data, once."""
        if cls.provider.caveat:  # not where partitioners are asked that nobody named, for the report
            warnings.warn(cls.provider.caveat, PluginWarning, stacklevel=2)
        pairs = [
            pair for name, programs in edge_programs.items() for pair in zip(programs, compile_specs[name], strict=True)
        ]
        compiled = [cls._compile(program, specs) for program, specs in pairs]
        results = iter(packed(compiled, [program for program, _ in pairs], format_of(cls.provider)))
        return {name: [next(results) for _ in programs] for name, programs in edge_programs.items()}

    @classmethod
    def _compile(cls, program: ExportedProgram, compile_specs: list[CompileSpec]) -> Compiled:
        options = graph_options(cls.provider).of_compile_specs(compile_specs)
        model = converted(program, cls.provider, options)
        external = laid_beside(model.model, model.external)
        graph = graph_of(model.model)
        contents = {weight.info.name: ir.tensor(as_array(weight.tensor)) for weight in external}
        try:
            answer, is_asked = answer_of(cls.provider, replace(graph, weights={**graph.weights, **contents}), options)
        except ProviderFailed as error:
            raise PreprocessError(f"{cls.provider.name} refuses the partition: {error}") from error
        if answer.left:
            left = ", ".join(sorted({*answer.left.values()}))
            raise PreprocessError(f"{cls.provider.name} does not take the partition whole: {left} are left")
        asked = version_of(options.chosen_provider) if is_asked else "no provider, but its table"
        states, initial = state_records(model.states, {})
        blob = GraphBlob(
            asked, model.inputs, model.outputs, (), graph.content,
            states=states, places=indexed_inputs(program.graph, ResolvedSignature.of(program)), on_host=answer.on_host,
        )  # fmt: skip
        return Compiled(blob, dict(graph.weights), external, initial, dict(model.debug_handles))


def _lowering_for(row: Provider) -> type[GraphLowering]:
    """The class of a row, for its entry point."""
    return type(f"{row.backend_id}Lowering", (GraphLowering,), {"provider": row, "__doc__": f"For {row.drives}."})


WebGpuLowering: Final = _lowering_for(WEBGPU)
TensorRtRtxLowering: Final = _lowering_for(TENSORRT_RTX)
MlxLowering: Final = _lowering_for(MLX)
MiGraphXLowering: Final = _lowering_for(MIGRAPHX)
WindowsMlLowering: Final = _lowering_for(WINDOWSML)
OpenVinoLowering: Final = _lowering_for(OPENVINO_EP)
AnyLowering: Final = _lowering_for(PROVIDER)
