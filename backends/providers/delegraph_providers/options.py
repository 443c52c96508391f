"""Options of a delegate on Qualcomm's NPU, set when it is lowered -> those of the QNN execution provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec, DelegateOptions
from delegraph_providers.providers import QNN

__all__ = ["QnnOptions"]

PRECISIONS: Final = ("f16", "f32")
MODES: Final = (
    *("default", "burst", "balanced", "high_performance", "high_power_saver", "low_balanced", "low_power_saver"),
    *("power_saver", "extreme_power_saver", "sustained_high_performance"),
)
_NUMBERS: Final = ("soc_model", "htp_arch", "vtcm_mb")


@dataclass(frozen=True, slots=True)
class QnnOptions(DelegateOptions):
    """Options of one delegate.

    soc_model, htp_arch: the chip, by Qualcomm's number, and the version of its Hexagon processor: 57 and 75 are a
        Snapdragon 8 Gen 3 (SM8650). A delegate runs on that version alone, and compiling asks for both.
    precision: what a float32 model is computed in: "f16", which the processors have, or "f32", which the emulator has
        for some operators.
    vtcm_mb: megabytes of the processor's own memory that a delegate may take; 0: all of it.
    performance_mode: how fast the processor is clocked. At load only.
    """

    backend_id: ClassVar[str] = QNN.backend_id
    soc_model: int = 57
    htp_arch: int = 75
    precision: str = "f16"
    vtcm_mb: int = 0
    performance_mode: str = "default"

    def __post_init__(self) -> None:
        for name, holds, admitted in (
            ("soc_model", _is_count(self.soc_model), "a number of Qualcomm's"),
            ("htp_arch", _is_count(self.htp_arch), "a version of the processor, such as 73"),
            ("precision", self.precision in PRECISIONS, " or ".join(PRECISIONS)),
            ("vtcm_mb", _is_count(self.vtcm_mb), "0 to 999"),
            ("performance_mode", self.performance_mode in MODES, ", ".join(MODES)),
        ):
            if not holds:
                raise InvalidArgument(f"{self.backend_id}: {name} is {getattr(self, name)!r:.40}; it may be {admitted}")

    @classmethod
    def of_compile_specs(cls, specs: Sequence[CompileSpec]) -> QnnOptions:
        """The options of a delegate's compile specs."""
        named: dict[str, Any] = {}
        for spec in specs:
            if spec.key in cls.names():
                text = bytes(spec.value).decode(errors="replace")
                named[spec.key] = int(text) if spec.key in _NUMBERS and text.isdecimal() else text
        return cls(**named)

    def compile_specs(self) -> list[CompileSpec]:
        """All options, by which the same delegate is compiled again."""
        return [CompileSpec(key, str(value).encode()) for key, value in asdict(self).items()]

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


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= 999
