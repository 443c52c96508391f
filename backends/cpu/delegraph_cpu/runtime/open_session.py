"""Blob, weights, options -> an onnxruntime session of its graph, optimised now or for an earlier load."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache as once
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendCache, Buffer
from delegraph.lazy_dataclass import replace
from delegraph_cpu.blob import ITEM_SIZES, Blob, damaged
from delegraph_cpu.graphs.ordering import with_late_constants
from delegraph_cpu.runtime.adaptive import AdaptiveSession, ThreadedSession, cores_of_others, spare_cores
from delegraph_cpu.runtime.optimized import Optimized, optimized_blob
from delegraph_cpu.runtime.options import ADAPTIVE, CpuOptions
from delegraph_cpu.runtime.ort_values import PAIRS, ort_value

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

    from delegraph.interfaces import EventTracer
    from delegraph_cpu.runtime.profiling import ProfiledSession
    from delegraph_cpu.runtime.tapping import TappedSession

__all__ = ["FATAL_ONLY", "Session", "TracedSession", "open_session"]

Weights: TypeAlias = "Mapping[str, NDArray[Any]]"
Session: TypeAlias = "onnxruntime.InferenceSession | ThreadedSession | ProfiledSession | TappedSession"


class TracedSession:
    """A session that tells an event tracer of its runs."""

    __slots__ = ()


"""Sessions that tell a tracer of their runs: each is of one load, and none is bound."""

FATAL_ONLY: Final = 4  # OrtLoggingLevel
LITTLE_WORK: Final = 8_000_000
"""Multiply-adds, a quarter of a millisecond of one core, below which waking up others costs all that they save."""
SPINNING_US: Final = 500
"""Longer than the time that ViT-Ti needs on one thread between two products, and onnxruntime for a call in between."""
SHORT_SPIN_US: Final = 20
"""The spinning time where it does not adapt: it bridges the gap between two nodes, and leaves the core to others."""
CACHED_BYTES: Final = 2**20
"""Weights of 1 MiB, about a core's own cache: with more, a second thread that is awake pays even for little work. An
MLP of 2 MB of weights takes 118 us on one thread and 49 on two; its 0.5 MB in int8 take 31 and 42."""
TWICE_BYTES: Final = 2**24
"""Weights up to 16 MiB may be packed twice, for a session that spins and one that sleeps: ViT-Ti (23 MB), MiniLM and a
Llama of 85 MB in 4 bits gain 0 to 3 % by it (two threads)."""
TRIMMED_BYTES: Final = 2**24
"""Weights from 16 MiB on are worth the 20 ms that looking through a large heap may take."""
_INTEGER_PRODUCTS: Final = (
    *(b"QLinear", b"QGemm", b"MatMulInteger", b"ConvInteger"),
    *(b"DynamicQuantizeMatMul", b"DynamicQuantizeLSTM"),
)
"""Parts of the names of operators that multiply uint8 with int8."""


def open_session(
    blob: Blob,
    weights: Weights,
    options: CpuOptions,
    tracer: EventTracer | None,
    cache: BackendCache,
    made_of: Sequence[Buffer],
) -> tuple[Session, tuple[NDArray[Any], ...]]:
    """A session of `blob`, which tells the tracer of its nodes' times or values if the options ask for it; and the
    arrays that it reads without owning them. `made_of` are the bytes by which the cache knows it.

    Raises `DelegateInvalidCompatibility` if onnxruntime refuses the graph, or it is not what the header says.
    """
    if tracer is not None and options.intermediate_outputs:
        from delegraph_cpu.runtime.tapping import tapped

        def make_tapped(graph: bytes) -> onnxruntime.InferenceSession:
            return _session(blob, Optimized(graph, weights), options.optimization_level, options)

        return tapped(blob, make_tapped, tracer), tuple(weights.values())
    source = Optimized(blob.graph, weights)
    make = partial(_session, blob, source, options.optimization_level)
    cached = _cached(blob, weights, options, cache, made_of)
    if cached is None:
        return _opened(blob, weights, make, options, tracer), tuple(weights.values())

    def make_cached(*arguments: Any) -> onnxruntime.InferenceSession:
        try:
            return _session(blob, cached, "disabled", *arguments)
        except DelegateInvalidCompatibility:  # not files that we wrote, or they have gone since
            if cached.entry is not None:
                cache.discard(cached.entry)
            return make(*arguments)

    memory = (*weights.values(), *cached.weights.values())
    return _opened(blob, weights, make_cached, options, tracer), memory


def _opened(
    blob: Blob,
    weights: Weights,
    make: Callable[..., onnxruntime.InferenceSession],
    options: CpuOptions,
    tracer: EventTracer | None,
) -> Session:
    """One session, or two where spinning adapts; one that a forked process can use, if it has no threads."""
    others = cores_of_others() if _may_adapt(blob, weights, options) else None
    spin = SHORT_SPIN_US if options.spin_duration_us == ADAPTIVE else options.spin_duration_us
    alone = options.thread_pool == "session" and _is_little(blob)
    at_rest = replace(options, num_threads=1 if alone else options.num_threads, spin_duration_us=spin)
    spinning, sleeping = replace(options, spin_duration_us=SPINNING_US), replace(at_rest, spin_duration_us=0)
    if options.profiling and tracer is not None:  # of a session like that which would run now
        from delegraph_cpu.runtime.describing import node_names
        from delegraph_cpu.runtime.profiling import ProfiledSession

        now = at_rest
        if others is not None:
            now = spinning if others() <= spare_cores(options.num_threads) else sleeping
        return ProfiledSession(partial(make, now), tracer, node_names(blob))
    if others is None:
        has_threads = options.thread_pool == "shared" or at_rest.num_threads != 1
        return ThreadedSession(partial(make, at_rest)) if has_threads else make(at_rest)
    return AdaptiveSession(partial(make, spinning), partial(make, sleeping), options.num_threads, others)


def _may_adapt(blob: Blob, weights: Weights, options: CpuOptions) -> bool:
    """Whether its own threads wait for work, and its weights may be packed twice."""
    if options.spin_duration_us != ADAPTIVE or options.thread_pool == "shared" or options.num_threads == 1:
        return False
    nbytes = sum(array.nbytes for array in weights.values())
    return nbytes <= TWICE_BYTES and (nbytes >= CACHED_BYTES or not _is_little(blob))


def _is_little(blob: Blob) -> bool:
    return blob.multiply_adds is not None and blob.multiply_adds < LITTLE_WORK


def _session(
    blob: Blob, source: Optimized, level: str, options: CpuOptions, profile: str | None = None
) -> onnxruntime.InferenceSession:
    """A session of the graph and weights of `source`; its profile goes to a file whose name begins with `profile`."""
    from delegraph_cpu import sessions

    settings = _settings(blob, source.weights, level)
    if source.entry is not None:
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path", str(source.entry))
    if options.thread_pool == "shared":
        sessions.use_shared_pool(settings, options.num_threads)
    else:
        sessions.use_own_threads(settings, options.num_threads, options.spin_duration_us)
    if profile is not None:
        settings.enable_profiling, settings.profile_file_prefix = True, profile
    session = _created(blob, source, settings, options.widen)
    if sum(weight.nbytes for weight in blob.weights) >= TRIMMED_BYTES:
        _give_back()
    _check_borders(session, blob)
    return session


def _settings(blob: Blob, weights: Weights, level: str) -> onnxruntime.SessionOptions:
    from delegraph_cpu import sessions
    from delegraph_cpu.engine import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = FATAL_ONLY  # errors are raised
    settings.add_session_config_entry("session.load_model_format", "ONNX")  # the only format that is checked
    settings.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, "ORT_DISABLE_ALL" if level == "disabled" else f"ORT_ENABLE_{level.upper()}"
    )
    settings.add_external_initializers(list(weights), list(map(ort_value, weights.values())))
    graph = bytes(blob.graph)
    multiplies = any(product in graph for product in _INTEGER_PRODUCTS)
    if multiplies and sessions.products_saturate() and _may_saturate(blob, weights):
        settings.add_session_config_entry("session.x64quantprecision", "1")  # weights become uint8
        if level in ("disabled", "basic"):  # which do not include it
            settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return settings


def _may_saturate(blob: Blob, weights: Weights) -> bool:
    """Whether the sum of two products of bytes with int8 weights may exceed 16 bits: not for weights up to 64, as
    recipes with `reduce_range` make them. All int8 weights lie beside the graph."""
    narrow = (array for array in map(np.asarray, weights.values()) if array.dtype == np.int8)
    return bool(blob.unpacked) or any(map(_is_large, narrow))


def _is_large(array: NDArray[Any]) -> bool:
    """Whether an int8 is beyond 64. Most arrays have one in their first row, so that a mapped file is hardly read."""
    flat = array.reshape(-1)
    blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
    return any(max(int(block.max()), -int(block.min())) > _SAFE for block in blocks)


_BLOCK: Final = 2**16
_SAFE: Final = 64
"""2 * 255 * 64 is less than 2^15."""


def _created(
    blob: Blob, source: Optimized, settings: onnxruntime.SessionOptions, widen: str
) -> onnxruntime.InferenceSession:
    from delegraph_cpu import sessions
    from delegraph_cpu.engine import onnxruntime

    graph = with_late_constants(source.graph) if widen == "run" else bytes(source.graph)
    try:
        return sessions.create_session(graph, settings, (*blob.inputs, *blob.outputs), widen)
    except Exception as error:  # pybind's exceptions have no common base
        if any(words in str(error) for words in _NO_ROOM):
            raise MemoryError(str(error)) from error
        raise DelegateInvalidCompatibility(_refusal(blob.onnxruntime, onnxruntime.__version__, error)) from error


_NO_ROOM: Final = ("std::bad_alloc", "Failed to allocate memory")
"""As onnxruntime says that it has no memory."""


def _refusal(made_with: str, here: str, error: Exception) -> str:
    origin = "" if made_with == here else f" (optimised with {made_with!r:.40}, says its header)"
    return f"onnxruntime {here} refuses the graph{origin}: {error}; lower the program again"


def _give_back() -> None:
    """Let the C library give the system what making a session took for a moment: weights before they were packed."""
    trim = getattr(_c_library(), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


@once
def _c_library() -> object:
    return ctypes.CDLL(None) if os.name == "posix" else None


# ---- the cache ----------------------------------------------------------------------------------------------------


def _cached(
    blob: Blob, weights: Weights, options: CpuOptions, cache: BackendCache, made_of: Sequence[Buffer]
) -> Optimized | None:
    """The blob after onnxruntime's optimisation on this machine, out of the cache or put there."""
    if cache.cache is None:
        return None
    from delegraph_cpu import sessions

    optimize = partial(_optimize, blob, weights, options)
    left_out = sessions.left_out((*blob.inputs, *blob.outputs), options.widen)
    settings = f"{options.optimization_level}, without {left_out}"
    return optimized_blob(cache, made_of, weights, settings, optimize)


def _optimize(blob: Blob, weights: Weights, options: CpuOptions, path: str, name: str) -> None:
    """Write the optimised graph to `path`, its weights to the file `name` beside it."""
    from delegraph_cpu import sessions

    settings = _settings(blob, weights, options.optimization_level)
    sessions.write_optimized(settings, path, name, packed=True)
    _created(blob, Optimized(blob.graph, weights), settings, options.widen)


# ---- what was made ------------------------------------------------------------------------------------------------


def _check_borders(session: onnxruntime.InferenceSession, blob: Blob) -> None:
    """Raise unless the graph has the inputs and outputs of the header; onnxruntime checks shapes when it runs."""
    taken = {info.name: info.dtype for info in blob.inputs if info.dtype}
    taken |= {state.name: state.dtype for state in blob.states}
    results = {info.name: info.dtype for info in blob.outputs} | {state.output: state.dtype for state in blob.states}
    taken, results = ({name: PAIRS.get(dtype, dtype) for name, dtype in side.items()} for side in (taken, results))
    outputs = {node.name: _DTYPES.get(node.type) for node in session.get_outputs()}
    inputs = {node.name: _DTYPES.get(node.type) for node in session.get_inputs()}
    if taken != inputs or not results.items() <= outputs.items():
        raise damaged("its graph has other inputs or outputs than its header says")


_DTYPES: Final = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{f"tensor({name})": name for name in ITEM_SIZES},
}
"""onnxruntime's names of the types of tensors."""
