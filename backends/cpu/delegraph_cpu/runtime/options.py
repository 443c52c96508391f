"""The options of a delegate at load, and their defaults."""

from __future__ import annotations

import os
from typing import ClassVar, Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import DelegateOptions
from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import BACKEND_ID

__all__ = ["ADAPTIVE", "CpuOptions"]

THREADS_VARIABLE: Final = "DELEGRAPH_CPU_THREADS"
THREAD_POOLS: Final = ("session", "shared")
ADAPTIVE: Final = -1
"""Long where cores are free, and none where others use them: the wrong choice costs two threads a third of their speed
or more (`python -m benchmarks.shared_machine`)."""
OPTIMIZATION_LEVELS: Final = ("disabled", "basic", "extended", "all")
WIDEN: Final = ("load", "run")


@dataclass(frozen=True, slots=True)
class CpuOptions(DelegateOptions):
    """Options of one delegate.

    num_threads: threads that compute at most, the caller's included; 0: one per physical core.
    thread_pool: "session", threads of this delegate's own (none where there is little to compute), or "shared", one
        pool for all delegates of the process, which is onnxruntime's for the whole process.
    spin_duration_us: microseconds that an idle thread of a "session" pool waits busily for more work before it sleeps;
        -1: 500 while other processes leave the cores free, and 0 while they don't; 20 where that does not adapt: with
        weights above 16 MiB, and on systems that do not tell of other processes.
    optimization_level: what onnxruntime still optimises at load; "all" adds layouts for this very CPU.
    widen: when weights that the blob holds in fewer bits than onnxruntime computes with (bfloat16, float16, kernels of
        8 bits) become float32: once, at "load", or in each "run", which takes less memory and more time.
    cache: deprecated, a folder in which the optimised graph is kept; `delegraph.load(…, cache=…)` is for all backends.
    profiling: whether an event tracer is told of each node that onnxruntime runs, with its time; slower.
    intermediate_outputs: whether it is told the value of each node, in place of its time; slower.
    """

    backend_id: ClassVar[str] = BACKEND_ID
    num_threads: int = 0
    thread_pool: str = "session"
    spin_duration_us: int = ADAPTIVE
    optimization_level: str = "all"
    widen: str = "load"
    cache: str = ""
    profiling: bool = False
    intermediate_outputs: bool = False

    def __post_init__(self) -> None:
        threads, spin = self.num_threads, self.spin_duration_us
        for name, holds, admitted in (
            ("num_threads", type(threads) is int and 0 <= threads <= 1024, "0 to 1024"),
            ("thread_pool", self.thread_pool in THREAD_POOLS, " or ".join(THREAD_POOLS)),
            ("spin_duration_us", type(spin) is int and ADAPTIVE <= spin <= 1_000_000, "-1 to 1000000"),
            ("optimization_level", self.optimization_level in OPTIMIZATION_LEVELS, ", ".join(OPTIMIZATION_LEVELS)),
            ("widen", self.widen in WIDEN, " or ".join(WIDEN)),
            ("cache", isinstance(self.cache, str), "a folder's path"),
            ("profiling", isinstance(self.profiling, bool), "true or false"),
            ("intermediate_outputs", isinstance(self.intermediate_outputs, bool), "true or false"),
        ):
            if not holds:
                raise InvalidArgument(f"{BACKEND_ID}'s option {name} must be {admitted}")

    @staticmethod
    def from_environment() -> CpuOptions:
        """The defaults, with the number of threads from DELEGRAPH_CPU_THREADS if it is set."""
        text = os.environ.get(THREADS_VARIABLE, "").strip()
        if not text:
            return CpuOptions()
        if not text.isdecimal():
            raise InvalidArgument(f"{THREADS_VARIABLE}={text!r} is not a number of threads")
        return CpuOptions(num_threads=int(text))
