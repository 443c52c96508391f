"""Where checks work: a subject, and a folder of programs that were lowered onto it.

A program is lowered in a process with torch and run in one without. The folder has all that passes between the two:

    NAME.pte (and .ptd)   the program
    NAME.json             `Facts`: the nodes taken, the operators left and why
    NAME.npz              inputs and torch's results of each call
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from delegraph_testkit.arrays import TOLERANCES, Array, load_arrays, save_arrays
from delegraph_testkit.subject import Subject

__all__ = ["Bench", "Call", "Facts", "Stored"]


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that lowering told of a program.

    `taken` are nodes in delegates, `left` operators that are not, with their reasons; `backends` are the ids in the
    file; `features` are those of `FEATURES` that lowering shows to have been made use of; `kernels` are libraries
    that go before the kit's; `refused` tells what was taken and then not compiled.
    """

    taken: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all of the model is taken. Of a quantized one, the calls that quantize inputs and dequantize outputs
        may stay outside."""
        return bool(self.taken) and all(operator.startswith("quantized_decomposed::") for operator in self.left)

    @property
    def why_left(self) -> str:
        """The first few reasons."""
        reasons = list(dict.fromkeys(f"{node}: {reason}" for node, reason in self.left.items()))
        more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        return "; ".join(reasons[:3]) + more


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a method: its inputs, torch's results, and how far torch's own may be off, for each result."""

    method: str
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    slack: tuple[float, ...]


@dataclass(frozen=True)
class Stored:
    """A program in a bench's folder."""

    folder: Path
    name: str

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.pte"

    @cached_property
    def external(self) -> list[Path]:
        """Its .ptd files."""
        return sorted(self.folder.glob(f"{self.name}*.ptd"))

    @cached_property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / f"{self.name}.json").read_text("utf-8"))
        return content

    @cached_property
    def facts(self) -> Facts:
        content = self._content["facts"]
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        return Facts(**fields)

    @cached_property
    def calls(self) -> list[Call]:
        arrays = load_arrays(self.folder / f"{self.name}.npz")
        return [
            Call(
                call["method"],
                tuple(arrays[f"{index}.in.{i}"] for i in range(call["inputs"])),
                tuple(arrays[f"{index}.out.{i}"] for i in range(len(call["slack"]))),
                tuple(call["slack"]),
            )
            for index, call in enumerate(self._content["calls"])
        ]

    def write(self, facts: Facts, calls: list[Call]) -> None:
        """Write the files beside the program."""
        arrays = {f"{n}.in.{i}": array for n, call in enumerate(calls) for i, array in enumerate(call.inputs)}
        arrays |= {f"{n}.out.{i}": array for n, call in enumerate(calls) for i, array in enumerate(call.expected)}
        save_arrays(self.folder / f"{self.name}.npz", arrays)
        described = [{"method": c.method, "inputs": len(c.inputs), "slack": list(c.slack)} for c in calls]
        content = {"facts": asdict(facts), "calls": described}
        (self.folder / f"{self.name}.json").write_text(json.dumps(content), "utf-8")


@dataclass(frozen=True, slots=True)
class Bench:
    """The argument of every check."""

    subject: Subject
    folder: Path

    def stored(self, name: str) -> Stored:
        """The program called `name`, which has been lowered."""
        return Stored(self.folder, name)

    @property
    def tolerances(self) -> Mapping[str, tuple[float, float]]:
        """Those of the dtypes, the author's own before them."""
        return {**TOLERANCES, **self.subject.claims.tolerances}
