"""Users' options beside "npu" -> compile specs -> the compiler's options.

A program holds its delegates' compile specs: they have no path of the machine on which it was lowered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec
from delegraph_npu.blob import ROUNDINGS
from delegraph_npu.device import device_text

__all__ = ["DEFAULT_DEVICE", "GOALS", "Options"]

DEFAULT_DEVICE: Final = "ethos-u55-128"

GOALS: Final = ("performance", "size")
"""Fewer cycles, or less SRAM."""

_DEVICE: Final = "device"
_REST: Final = "npu"
_OTHERS: Final = "other_devices"


@dataclass(frozen=True, slots=True)
class Options:
    """`device`: the description of one, TOML. `optimize`: one of `GOALS`. `rounding`: "single", as TOSA rounds, or
    "double", as TFLite and CMSIS do. `compress_weights`: whether weights lie compressed. `others`: the descriptions of
    further devices, for which blobs are made as well."""

    device: str
    optimize: str = "performance"
    rounding: str = "single"
    compress_weights: bool = True
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` for a value that is none of the choices."""
        for name, choices in (("optimize", GOALS), ("rounding", ROUNDINGS)):
            if getattr(self, name) not in choices:
                raise InvalidArgument(f"npu: {name} is {getattr(self, name)!r}; it is one of {', '.join(choices)}")

    def specs(self) -> list[CompileSpec]:
        """The options as compile specs."""
        rest = {"optimize": self.optimize, "rounding": self.rounding, "compress_weights": self.compress_weights}
        others = [CompileSpec(_OTHERS, json.dumps(self.others).encode())] if self.others else []
        return [CompileSpec(_DEVICE, self.device.encode()), CompileSpec(_REST, json.dumps(rest).encode()), *others]

    def of_each_device(self) -> list[Options]:
        """The options for one device alone, in the order of preference."""
        return [replace(self, device=device, others=()) for device in (self.device, *self.others)]

    @classmethod
    def of(cls, specs: Sequence[CompileSpec]) -> Options:
        """The options in compile specs; default options where they have none."""
        values = {spec.key: bytes(spec.value).decode() for spec in specs}
        device = values[_DEVICE] if _DEVICE in values else device_text(DEFAULT_DEVICE)[0]
        others = tuple(json.loads(values.get(_OTHERS, "[]")))
        return cls(device, **json.loads(values.get(_REST, "{}")), others=others)
