"""What users write beside "npu" -> compile specs -> what the compiler is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from delegraph.errors import InvalidArgument
from delegraph.interfaces import CompileSpec
from delegraph_npu.blob import ROUNDINGS

__all__ = ["DEFAULT_DEVICE", "GOALS", "Options"]

DEFAULT_DEVICE: Final = "ethos-u55-128"

GOALS: Final = ("performance", "size")
"""Fewer cycles, or less SRAM."""

_KEY: Final = "npu"


@dataclass(frozen=True, slots=True)
class Options:
    """`device`: a preset, or the path of a description. `optimize`: one of `GOALS`. `rounding`: "single", as TOSA
    rounds, or "double", as TFLite and CMSIS do. `compress_weights`: whether weights lie compressed. `dump`: a directory
    into which each pass writes what it made of each partition."""

    device: str = DEFAULT_DEVICE
    optimize: str = "performance"
    rounding: str = "single"
    compress_weights: bool = True
    dump: str | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` for what is none of the choices."""
        for name, choices in (("optimize", GOALS), ("rounding", ROUNDINGS)):
            if getattr(self, name) not in choices:
                raise InvalidArgument(f"npu: {name} is {getattr(self, name)!r}; it is one of {', '.join(choices)}")

    def specs(self) -> list[CompileSpec]:
        """The options as they travel to the compiler."""
        return [CompileSpec(_KEY, json.dumps(asdict(self)).encode())]

    @classmethod
    def of(cls, specs: Sequence[CompileSpec]) -> Options:
        """The options that compile specs hold; the default ones, if they hold none."""
        found = next((bytes(spec.value) for spec in specs if spec.key == _KEY), None)
        return cls() if found is None else cls(**json.loads(found))

    def dumped(self, partition: str, step: int, name: str, text: str) -> None:
        """Write `text` into a file of the dump, if there is to be one."""
        if self.dump is not None:
            directory = Path(self.dump) / partition
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{step}_{name}.txt").write_text(text, "utf-8")
