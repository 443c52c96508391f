"""onnxruntime sessions, and their threads: their own, or those of the process.

onnxruntime has one global pool per process. Once it exists, every session of the process must use it, an application's
as well: a session that asks for threads of its own is refused. So it is made only for "shared". Its threads wait busily
for milliseconds; for a session's own threads that can be set (of the global pool Python can set the size alone).
"""

from __future__ import annotations

import os
from _thread import allocate_lock as Lock
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, NotSupported
from delegraph.interfaces import BlobTensor
from delegraph_cpu.engine import onnxruntime, ort
from delegraph_cpu.graphs.wire import encoded

__all__ = [
    "INLINE_BYTES",
    "create_session",
    "left_out",
    "products_saturate",
    "run_of",
    "use_own_threads",
    "use_shared_pool",
    "write_optimized",
]

LEFT_OUT: Final = [
    "SkipLayerNormFusion",  # its kernel is scalar: five times as long as Add and LayerNormalization
    "WeightBiasQuantization",  # rounds weights that a program has in float, where values beside them are quantized
    "DoubleQDQPairsRemover",  # rounds once what a program rounds twice, and forgets the narrower range
    "QDQSelectorActionTransformer",  # chooses integer kernels, after the converters: some round otherwise than torch
    "QDQPropagationTransformer",  # adds pairs of quantizing and dequantizing, for the one above to remove
    "QDQS8ToU8Transformer",  # prepares for the same, and fails where two constants share a zero point
    "NoopElimination",  # compares with 0 and 1 in 32 bits: of doubles, factors of 1 + 1e-12 and terms of 5e-324 go
]
"""onnxruntime's graph optimisations that are not run, at lowering or at load."""

_DOUBLES: Final = frozenset({"float64", "complex128"})


def left_out(tensors: Iterable[BlobTensor], widen: str = "load") -> list[str]:
    """The optimisations that are not run on a graph with these inputs and outputs: a factor of a product, which one of
    them makes an attribute of 32 bits, loses half of its digits beside doubles; and folded constants are wide."""
    has_doubles = any(tensor.dtype in _DOUBLES for tensor in tensors)
    return [
        *LEFT_OUT,
        *(["MatMulScaleFusion"] if has_doubles else []),
        *(["ConstantFolding"] if widen == "run" else []),
    ]


BLOCKS_PER_THREAD: Final = 4
"""The number of blocks per thread into which an operator's work is cut, taken one after the other: onnxruntime's
documentation of `dynamic_block_base` advises it where latencies vary."""

INLINE_BYTES: Final = 256
"""Weights up to this size stay in the graph when it is written."""

_lock = Lock()
_pool_size: int | None = None
"""The number of threads of the shared pool; 0 for onnxruntime's choice; None before there is a pool."""
_is_left = False
"""Whether the pool is that of the process from which this one was forked: its threads are not here."""


def _leave_pool() -> None:
    global _is_left, _lock
    _is_left, _lock = _pool_size is not None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_pool)


def _require_threads() -> None:
    if _is_left:
        raise NotSupported(
            "this process was forked from one whose delegates share a thread pool, onnxruntime's only one, and the"
            " pool's threads stayed there; fork before the first delegate is loaded, load with thread_pool='session',"
            " or start processes by spawn"
        )


def use_shared_pool(options: onnxruntime.SessionOptions, num_threads: int) -> None:
    """Let a session use the process's pool, made with `num_threads` if there is none.

    0 takes the pool as it is. Raises `InvalidArgument` if the pool has another number of threads, and `NotSupported`
    if it is another process's.
    """
    global _pool_size  # noqa: PLW0603
    _require_threads()
    with _lock:
        if _pool_size is None:
            try:
                ort.set_global_thread_pool_sizes(num_threads, 1)
            except Exception as error:  # pybind's exceptions have no common base
                if "already been created" not in str(error):  # by the application itself: that pool is shared
                    raise
            _pool_size = num_threads
    if num_threads not in (0, _pool_size):
        raise InvalidArgument(
            f"num_threads={num_threads}, but the thread pool that this process's delegates share was made with"
            f" {_pool_size or 'the default number of'} threads when the first one was loaded; set"
            " DELEGRAPH_CPU_THREADS, or load all of them with thread_pool='session'"
        )
    options.use_per_session_threads = False


def use_own_threads(options: onnxruntime.SessionOptions, num_threads: int, spin_duration_us: int) -> None:
    """Give a session threads of its own. Raises `InvalidArgument` if the shared pool exists."""
    _require_threads()
    if _pool_size is not None:
        raise InvalidArgument(
            "thread_pool='session', but an earlier delegate of this process made the shared pool, and onnxruntime"
            " then allows no other; load all delegates with thread_pool='session'"
        )
    options.intra_op_num_threads = num_threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin_duration_us else "0")
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(spin_duration_us))
    if not spin_duration_us:  # a late thread finds its share done by the others
        options.add_session_config_entry("session.dynamic_block_base", str(BLOCKS_PER_THREAD))


def create_session(
    model: bytes, options: onnxruntime.SessionOptions, tensors: Iterable[BlobTensor] = (), widen: str = "load"
) -> onnxruntime.InferenceSession:
    """A session on the CPU, in the pool of the process if there is one; `tensors` are the model's inputs and outputs,
    and `widen` tells when its weights become wide. Raises what onnxruntime raises."""
    # without its fallback, which prints and tries again with the same provider
    arguments = {
        "providers": ["CPUExecutionProvider"],
        "enable_fallback": 0,
        "disabled_optimizers": left_out(tensors, widen),
    }
    if widen == "run":  # each just before its product; otherwise all come first, and are wide at the same time
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    try:
        return onnxruntime.InferenceSession(model, options, **arguments)
    except RuntimeError as error:
        if "use_per_session_threads" not in str(error):
            raise
    options.use_per_session_threads = False
    options.intra_op_num_threads = 0  # the pool has its own number; another one would only be warned about
    return onnxruntime.InferenceSession(model, options, **arguments)


def write_optimized(options: onnxruntime.SessionOptions, path: str, weights: str, packed: bool = False) -> None:
    """Let a session write its graph as it was optimised to `path`, its weights to the file `weights` beside it; with
    `packed`, those that it packs for this processor as they are and packed."""
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = path
    for key, value in (
        ("optimized_model_external_initializers_file_name", weights),
        ("optimized_model_external_initializers_min_size_in_bytes", str(INLINE_BYTES)),
        ("save_external_prepacked_constant_initializers" if packed else "disable_prepacking", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)


def run_of(
    session: onnxruntime.InferenceSession, binding: onnxruntime.IOBinding
) -> tuple[Callable[[Any, onnxruntime.RunOptions], object], object]:
    """onnxruntime's own call behind `session.run_with_iobinding(binding, options)`, and its argument for `binding`.

    The code between them looks for graphs captured on GPUs, and costs a small model 5 us in each run (1.31). Keep
    `binding` as long as the call is used.
    """
    return session._sess.run_with_iobinding, binding._iobinding


@cache
def products_saturate() -> bool:
    """Whether onnxruntime's products of uint8 and int8 saturate at 16 bits here: on x86 processors without VNNI.

    Decided by a multiplication: each operating system describes a processor in another way.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    feeds = {"x": np.full((1, 64), 255, np.uint8), "w": np.full((64, 1), 127, np.int8)}
    (result,) = create_session(_product_of_integers(), options).run(None, feeds)
    return int(result.item()) != 64 * 255 * 127


def _product_of_integers() -> bytes:
    """An ONNX model of `y = MatMulInteger(x, w)`, x in uint8, w in int8, y in int32."""
    value = {
        name: {"name": name, "type": {"tensor_type": {"elem_type": element}}}
        for name, element in (("x", 2), ("w", 3), ("y", 6))
    }
    node = {"input": ["x", "w"], "output": ["y"], "op_type": "MatMulInteger"}
    graph = {"node": [node], "name": "g", "input": [value["x"], value["w"]], "output": [value["y"]]}
    return b"".join(encoded({"ir_version": 8, "graph": graph, "opset_import": [{"version": 13}]}))
