"""Options of a delegate, set when it is lowered or loaded -> those of its execution provider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, ClassVar, Final, Self

from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec, DelegateOptions
from delegraph.lazy_dataclass import dataclass
from delegraph_providers.providers import PROVIDER, QNN, Provider

__all__ = ["GraphOptions", "ProviderOptions", "QnnOptions", "graph_options"]

PRECISIONS: Final = ("f16", "f32")
MODES: Final = (
    *("default", "burst", "balanced", "high_performance", "high_power_saver", "low_balanced", "low_power_saver"),
    *("power_saver", "extreme_power_saver", "sustained_high_performance"),
)
KINDS: Final = ("", "GPU", "NPU", "CPU")
STATES: Final = ("host", "device")
_PACKAGE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class ProviderOptions(DelegateOptions):
    """The base of the options of one delegate; those of `numbers` are numbers, and what a file says of those that are
    `for_users` alone is not heard. Those that are true or false are at load only."""

    __slots__ = ()

    numbers: ClassVar[frozenset[str]] = frozenset()
    for_users: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of_file(cls, specs: Sequence[CompileSpec]) -> Self:
        """The options of the compile specs that a file has, whoever wrote it."""
        return cls.of_compile_specs([spec for spec in specs if spec.key not in cls.for_users])

    @classmethod
    def of_compile_specs(cls, specs: Sequence[CompileSpec]) -> Self:
        """The options of compile specs."""
        named: dict[str, Any] = {}
        for spec in specs:
            if spec.key in cls.names():
                text = bytes(spec.value).decode(errors="replace")
                named[spec.key] = int(text) if spec.key in cls.numbers and text.isdecimal() else text
        return cls(**named)

    def compile_specs(self) -> list[CompileSpec]:
        """All options, by which the same delegate is compiled again."""
        chosen = asdict(self)  # type: ignore[call-overload]  # a dataclass
        return [CompileSpec(key, str(value).encode()) for key, value in chosen.items() if not isinstance(value, bool)]

    def _check(self, rules: Iterable[tuple[str, object, str]]) -> None:
        for name, holds, admitted in rules:
            if not holds:
                raise InvalidArgument(f"{self.backend_id}: {name} is {getattr(self, name)!r:.40}; it may be {admitted}")


@dataclass(frozen=True, slots=True)
class QnnOptions(ProviderOptions):
    """Options of one delegate on Qualcomm's NPU.

    soc_model, htp_arch: the chip, by Qualcomm's number, and the version of its Hexagon processor: 57 and 75 are a
        Snapdragon 8 Gen 3 (SM8650). A delegate runs on that version alone, and compiling asks for both.
    precision: what a float32 model is computed in: "f16", which the processors have, or "f32", which the emulator has
        for some operators.
    vtcm_mb: megabytes of the processor's own memory that a delegate may take; 0: all of it.
    performance_mode: how fast the processor is clocked. At load only.
    profiling: whether a tracer is told the time of each node, as the processor counts its cycles. At load only.
    """

    for_users: ClassVar[frozenset[str]] = frozenset({"profiling"})
    backend_id: ClassVar[str] = QNN.backend_id
    numbers: ClassVar[frozenset[str]] = frozenset({"soc_model", "htp_arch", "vtcm_mb"})
    soc_model: int = 57
    htp_arch: int = 75
    precision: str = "f16"
    vtcm_mb: int = 0
    performance_mode: str = "default"
    profiling: bool = False

    def __post_init__(self) -> None:
        self._check(
            [
                ("soc_model", _is_count(self.soc_model), "a number of Qualcomm's"),
                ("htp_arch", _is_count(self.htp_arch), "a version of the processor, such as 73"),
                ("precision", self.precision in PRECISIONS, " or ".join(PRECISIONS)),
                ("vtcm_mb", _is_count(self.vtcm_mb), "0 to 999"),
                ("performance_mode", self.performance_mode in MODES, ", ".join(MODES)),
                ("profiling", isinstance(self.profiling, bool), "true or false"),
            ]
        )

    def of_provider(self) -> dict[str, str]:
        """The options of the QNN execution provider."""
        options = {"soc_model": str(self.soc_model), "htp_arch": str(self.htp_arch)}
        options["enable_htp_fp16_precision"] = str(int(self.precision == "f16"))
        options["offload_graph_io_quantization"] = "0"  # or quantized values go to the CPU where they enter and leave
        if self.vtcm_mb:
            options["vtcm_mb"] = str(self.vtcm_mb)
        if self.performance_mode != "default":
            options["htp_performance_mode"] = self.performance_mode
        return options


@dataclass(frozen=True, slots=True)
class GraphOptions(ProviderOptions):
    """Options of one delegate that is an ONNX graph, for every provider that takes such; `graph_options` has the class
    for one of them.

    precision: what a float32 model is computed in: "f32", or "f16", to which the graph is converted at lowering.
    device: "GPU", "NPU" or "CPU", where a plug-in offers several; "": the one that its row prefers.
    states: where the values of buffers that the delegate changes are between runs: "host", or "device", from which they
        are copied when the caller reads, saves, sets or forks them. At load only.
    package: the module of the plug-in, for the provider that has no row. At load, too, it is the caller who names what
        is imported, and no file.
    profiling: whether a tracer is told the times of what onnxruntime gives to the provider: of each node, or of the
        whole where the provider makes one of all. At load only.
    intermediate_outputs: whether it is told the value of each node, in place of its time; slower. At load only.
    """

    for_users: ClassVar[frozenset[str]] = frozenset({"states", "package", "profiling", "intermediate_outputs"})
    provider: ClassVar[Provider] = PROVIDER
    backend_id: ClassVar[str] = PROVIDER.backend_id
    precision: str = "f32"
    device: str = ""
    states: str = "host"
    package: str = ""
    profiling: bool = False
    intermediate_outputs: bool = False

    def __post_init__(self) -> None:
        where = STATES if self.provider.memory else STATES[:1]
        self._check(
            [
                ("precision", self.precision in PRECISIONS, " or ".join(PRECISIONS)),
                ("device", self.device in KINDS, "GPU, NPU, CPU or empty"),
                ("states", self.states in where, " or ".join(where)),
                ("package", self._fits(self.package), "the name of a module, for `provider` alone"),
                ("profiling", isinstance(self.profiling, bool), "true or false"),
                ("intermediate_outputs", isinstance(self.intermediate_outputs, bool), "true or false"),
            ]
        )

    def _fits(self, package: object) -> bool:
        if package == "":
            return True
        return self.provider == PROVIDER and isinstance(package, str) and bool(_PACKAGE.fullmatch(package))

    @property
    def chosen_provider(self) -> Provider:
        """The row, with the package that was named where it has none. Raises `InvalidArgument` if none was."""
        if self.provider != PROVIDER:
            return self.provider
        if not self.package:
            raise InvalidArgument(
                f"{self.backend_id} needs the name of the provider's package, which a file does not choose: lower with"
                " backends=['provider{package=onnxruntime_ep_…}'], load with"
                " backend_options={'AnyProvider': {'package': 'onnxruntime_ep_…'}}"
            )
        return PROVIDER.of_package(self.package)


@cache
def graph_options(provider: Provider) -> type[GraphOptions]:
    """The options of delegates of `provider`, which name it in errors."""
    names = {"__slots__": (), "provider": provider, "backend_id": provider.backend_id}
    return type("GraphOptions", (GraphOptions,), names)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= 999
