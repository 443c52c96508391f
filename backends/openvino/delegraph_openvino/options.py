"""A delegate's options, set when it is lowered or loaded -> OpenVINO's properties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec, DelegateOptions, OptionValue
from delegraph.lazy_dataclass import dataclass
from delegraph_openvino.blob import BACKEND_ID

__all__ = ["OpenVinoOptions"]

_READ: Final = {"True": True, "False": False}
HINTS: Final = ("latency", "throughput")
PRECISIONS: Final = ("f32", "f16", "bf16", "device")
_DEVICES: Final = "CPU, GPU, NPU (GPU.1 where there are several) or AUTO"
_DEVICE: Final = re.compile(r"(CPU|GPU|NPU|AUTO)(\.\d{1,3})?")


@dataclass(frozen=True, slots=True)
class OpenVinoOptions(DelegateOptions):
    """Options of one delegate.

    device: "CPU", "GPU", "NPU", with a number behind a dot where there are several, or "AUTO".
    num_threads: threads that compute at most; 0: OpenVINO's choice, one for each physical core. CPU only.
    performance_hint: "latency", or "throughput", which gives several requests (forks, calls from several threads)
        streams of their own.
    precision: the precision of float32 models: "f32"; "f16" or "bf16"; "device", the device's fastest. A model of
        bfloat16 is computed in bfloat16 where the processor has it.
    int8_products: whether values may be rounded to 8 bits, by groups of 32, where they are multiplied with weights that
        alone are quantized: faster, and a little less exact. CPU only; OpenVINO calls it dynamic quantization.
    profiling: whether an event tracer is told of each node that OpenVINO runs, with its time; slower. At load only.
    intermediate_outputs: whether a tracer is told the value of each node, in place of its time; slower. At load only.
    cache: deprecated, a folder in which compiled models are kept; `delegraph.load(…, cache=…)` is for all backends. At
        load only.
    """

    backend_id: ClassVar[str] = BACKEND_ID
    device: str = "CPU"
    num_threads: int = 0
    performance_hint: str = "latency"
    precision: str = "f32"
    int8_products: bool = False
    cache: str = ""
    profiling: bool = False
    intermediate_outputs: bool = False

    def __post_init__(self) -> None:
        device, threads = self.device, self.num_threads
        for name, holds, admitted in (
            ("device", isinstance(device, str) and _DEVICE.fullmatch(device), _DEVICES),
            ("num_threads", type(threads) is int and 0 <= threads <= 1024, "0 to 1024"),
            ("performance_hint", self.performance_hint in HINTS, " or ".join(HINTS)),
            ("precision", self.precision in PRECISIONS, " or ".join(PRECISIONS)),
            ("int8_products", isinstance(self.int8_products, bool), "true or false"),
            ("profiling", isinstance(self.profiling, bool), "true or false"),
            ("intermediate_outputs", isinstance(self.intermediate_outputs, bool), "true or false"),
            ("cache", isinstance(self.cache, str), "a folder's path"),
        ):
            if not holds:
                raise InvalidArgument(f"{BACKEND_ID}: {name} is {getattr(self, name)!r:.40}; it may be {admitted}")

    @classmethod
    def of_compile_specs(cls, specs: Sequence[CompileSpec]) -> OpenVinoOptions:
        """The options of a delegate's compile specs, which may neither name a folder nor ask for reports."""
        named: dict[str, Any] = {}
        for spec in specs:
            if spec.key in cls.names() - {"cache", "profiling", "intermediate_outputs"}:
                text = bytes(spec.value).decode(errors="replace")
                named[spec.key] = _READ.get(text, int(text) if spec.key == "num_threads" and text.isdecimal() else text)
        return cls(**named)

    def not_default(self) -> dict[str, OptionValue]:
        """The options that differ from the defaults."""
        default = OpenVinoOptions()
        return {key: value for key, value in asdict(self).items() if value != getattr(default, key)}

    def properties(self, int8_products: bool) -> dict[str, str]:
        """OpenVINO's properties for compiling (docs.openvino.ai, "Properties"); `int8_products`: whether the program
        itself rounds values at run time."""
        properties = {"PERFORMANCE_HINT": self.performance_hint.upper()}
        if self.precision != "device":
            properties["INFERENCE_PRECISION_HINT"] = self.precision
        if self.num_threads and self.device == "CPU":
            properties["INFERENCE_NUM_THREADS"] = str(self.num_threads)
        if self.device == "CPU":
            properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "32" if self.int8_products or int8_products else "0"
        if self.profiling:
            properties["PERF_COUNT"] = "YES"
        return properties
