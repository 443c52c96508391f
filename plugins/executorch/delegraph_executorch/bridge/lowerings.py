"""Partitions -> blobs, made by `BackendDetails` classes of ExecuTorch: the AOT halves `delegraph.lowerings`."""

from __future__ import annotations

from typing import Any, Final, cast

from torch.export import ExportedProgram

from delegraph.aot import BackendDetails, CompileSpec, NamedDataStoreOutput, PreprocessResult
from delegraph.errors import PluginLoadError, PluginUnavailable
from delegraph.program.flat_tensor import ExternalData
from delegraph.program.schema import NamedData
from delegraph_executorch.bridge.imports import BACKENDS, executorch
from delegraph_executorch.bridge.programs import translated
from delegraph_executorch.bridge.retracing import quick_retracing

__all__ = ["lowering_of", "offer_lowering"]


def lowering_of(backend_id: str) -> type[BackendDetails]:
    """A class that compiles with ExecuTorch's `BackendDetails` of this name."""

    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        return _compile(backend_id, {"forward": [edge_program]}, {"forward": [compile_specs]})["forward"][0]

    def preprocess_multimethod(
        cls: type, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        return _compile(backend_id, edge_programs, compile_specs)

    namespace = {
        "__module__": __name__,
        "__doc__": f"Compiles with ExecuTorch's `{backend_id}`.",
        "takes_external_weights": backend_id == "XnnpackBackend",  # by `meta["custom"]`, as it is marked here
        "preprocess": staticmethod(preprocess),
        "preprocess_multimethod": classmethod(preprocess_multimethod),
    }
    return cast("type[BackendDetails]", type(backend_id, (BackendDetails,), namespace))


def _compile(
    backend_id: str, programs: dict[str, list[ExportedProgram]], specs: dict[str, list[list[CompileSpec]]]
) -> dict[str, list[PreprocessResult]]:
    """All partitions of a backend at once, as ExecuTorch gives them to it."""
    backend = _their_class(backend_id)
    _require_compiler(backend_id)
    theirs = executorch("exir.backend.compile_spec_schema:CompileSpec")
    copies = {method: [translated(program).program for program in group] for method, group in programs.items()}
    their_specs = {
        method: [[theirs(spec.key, bytes(spec.value)) for spec in own] for own in group]
        for method, group in specs.items()
    }
    with quick_retracing(copy for group in copies.values() for copy in group):
        results = backend.preprocess_multimethod(copies, their_specs)
    return {method: [_result(result) for result in results[method]] for method in programs}


def _their_class(backend_id: str) -> Any:
    """ExecuTorch's class of this name, by which it finds backends itself (`exir/backend/backend_api.py`)."""
    base = executorch("exir.backend.backend_details:BackendDetails")
    known = {cls.__name__: cls for cls in base.__subclasses__()}
    if backend_id not in known and backend_id in BACKENDS:
        known[backend_id] = executorch(BACKENDS[backend_id])
    if backend_id not in known:
        raise PluginLoadError(
            f"no BackendDetails class of ExecuTorch is called {backend_id!r}; what to do: import the module that"
            " defines it before lowering"
        )
    return known[backend_id]


_COMPILERS: Final = {
    "VgfBackend": (
        "backends.arm.vgf.model_converter:find_model_converter_binary",
        "Arm's model-converter is not on the PATH; what to do: pip install ai-ml-sdk-model-converter",
    )
}
"""Backend -> a function of ExecuTorch that finds the program by which it compiles, and what to say if there is none."""


def _require_compiler(backend_id: str) -> None:
    if backend_id in _COMPILERS:
        find, missing = _COMPILERS[backend_id]
        if not executorch(find)():
            raise PluginUnavailable(f"{backend_id} cannot compile here: {missing}")


def _result(result: Any) -> PreprocessResult:
    made = PreprocessResult(
        bytes(result.processed_bytes), dict(result.debug_handle_map or {}), _named_data(result.data_store_output)
    )
    if getattr(result, "_delegate_info_meta", None) is not None and hasattr(made, "_delegate_info_meta"):
        made._delegate_info_meta = result._delegate_info_meta
    return made


def _named_data(store: Any) -> NamedDataStoreOutput | None:
    if store is None:
        return None

    pte = {key: NamedData(store.buffers[e.buffer_index], e.alignment or 1) for key, e in store.pte_data.items()}
    external = {
        tag: {key: ExternalData(store.buffers[e.buffer_index], None, e.alignment or 1) for key, e in data.items()}
        for tag, data in store.external_data.items()
    }
    return NamedDataStoreOutput(pte, external)


# ---- who asks for them -----------------------------------------------------------------------------


_STRANGERS: dict[str, type[BackendDetails]] = {}


def offer_lowering(backend_id: str) -> None:
    """See to it that `backend_id`, which a partitioner of ExecuTorch named, is found: those of `BACKENDS` are installed
    plug-ins, and a stranger's is a class of its name, made now and kept."""
    if backend_id not in BACKENDS and backend_id not in _STRANGERS:
        _STRANGERS[backend_id] = lowering_of(backend_id)


def __getattr__(name: str) -> Any:
    """The classes behind the entry points, by backend id."""
    if name not in BACKENDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, lowering_of(name))
