"""A program as plain data, and the Python that it stands for: an nn.Module, its inputs, which of their dims vary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn

__all__ = ["DYNAMIC", "PYTHONS", "SIZES", "Call", "Input", "Program", "namespace"]

SIZES: Final = (4, 6)
"""Of the dim that varies: the program is exported with the first and runs with both."""

DYNAMIC: Final = -1
"""Stands for that dim in the shape of an input."""

_NAME: Final = re.compile(r"\b[xvs]\d+\b")


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the program takes: small numbers, of which floats are multiples of 1/4, so that sums are exact."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    seed: int

    def text(self, size: int) -> str:
        """Python that makes it."""
        shape = tuple(size if dim == DYNAMIC else dim for dim in self.shape)
        whole = f"torch.randint(-8, 9, {shape}, generator=torch.Generator().manual_seed({self.seed}))"
        if self.dtype == "bool":
            return f"{whole} > 0"
        dtype = f"torch.{self.dtype}"
        return f"({whole} / 4).to({dtype})" if getattr(torch, self.dtype).is_floating_point else f"{whole}.to({dtype})"


@dataclass(frozen=True, slots=True)
class Call:
    """One statement of `forward`: `makes` is the value that it binds, or "" where it writes into one.

    `state` is the statement of `__init__` that it needs.
    """

    text: str
    makes: str = ""
    state: str = ""

    @property
    def uses(self) -> frozenset[str]:
        """The names of the values and states that it reads or writes."""
        return frozenset(_NAME.findall(self.text))

    @property
    def statement(self) -> str:
        return f"{self.makes} = {self.text}" if self.makes else self.text


@dataclass(frozen=True, slots=True)
class Program:
    """What `forward` takes, does and gives. Quantized ones go through `delegraph.quantize` before they are lowered."""

    inputs: tuple[Input, ...]
    calls: tuple[Call, ...]
    outputs: tuple[str, ...]
    quantized: bool = False

    @property
    def dynamic(self) -> bool:
        return any(DYNAMIC in value.shape for value in self.inputs)

    def source(self) -> str:
        """Python that defines the module `Model`."""
        states = [call.state for call in self.calls if call.state]
        init = ["super().__init__()", *(["torch.manual_seed(0)"] if states else []), *states]
        forward = [*(call.statement for call in self.calls), f"return {', '.join(self.outputs)},"]
        signature = ", ".join(("self", *(value.name for value in self.inputs)))
        lines = ["class Model(nn.Module):", "    def __init__(self):", *(f"        {line}" for line in init), ""]
        return "\n".join([*lines, f"    def forward({signature}):", *(f"        {line}" for line in forward)])

    def module(self, control_flow: Mapping[str, Any] = MappingProxyType({})) -> nn.Module:
        """The module for inference; each time a new one, with the same weights. `control_flow` as in `namespace`."""
        names = namespace(control_flow)
        exec(self.source(), names)
        with torch.random.fork_rng(devices=[]):
            model: nn.Module = names["Model"]().eval()
        return model.requires_grad_(False)

    def arguments(self, size: int) -> tuple[Tensor, ...]:
        """New inputs, with the dim that varies of this size."""
        return tuple(eval(value.text(size), namespace()) for value in self.inputs)

    def dynamic_shapes(self) -> dict[str, Any] | None:
        """As torch.export takes them."""
        if not self.dynamic:
            return None
        dim = torch.export.Dim("n", min=2, max=8)
        return {
            value.name: {i: dim for i, d in enumerate(value.shape) if d == DYNAMIC} or None for value in self.inputs
        }

    def snippet(self, backends: Sequence[object] = ()) -> str:
        """Python that runs as it stands and shows the lowered program's results beside the module's."""
        shapes = [
            f'"{value.name}": {{{", ".join(f"{i}: n" for i, d in enumerate(value.shape) if d == DYNAMIC)}}}'
            for value in self.inputs
        ]
        dynamic = f", dynamic_shapes={{{', '.join(shapes)}}}" if self.dynamic else ""
        every = 'backends=["cpu", "openvino", "npu", "dsp"]'
        lines = [
            *(*_IMPORTS, "", self.source(), ""),
            *(['n = torch.export.Dim("n", min=2, max=8)'] if self.dynamic else []),
            *("inputs = [", *(f"    ({', '.join(x.text(size) for x in self.inputs)},)," for size in SIZES), "]"),
            f"program = torch.export.export(Model().eval(), inputs[0]{dynamic})",
            *([f"program = delegraph.quantize(program, inputs, {every}).program"] if self.quantized else []),
            f"run = delegraph.load(bytes(delegraph.lower(program, backends={list(backends)})))",
            f"model = {'program.module()' if self.quantized else 'Model().eval()'}",
            "for x in inputs:",
            "    print(run(*x), model(*x), sep='\\n')",
        ]
        return "\n".join(lines)


_IMPORTS: Final = (
    "import torch",
    "import torch.nn.functional as F",
    "from torch import cond, nn",
    "from torch._higher_order_ops.map import map as map_rows",
    "from torch._higher_order_ops.scan import scan",
    "from torch._higher_order_ops.while_loop import while_loop",
    "",
    "import delegraph",
)


def namespace(control_flow: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The names that a program's text refers to, with `control_flow` in the place of torch's functions."""
    names: dict[str, Any] = {}
    exec("\n".join(_IMPORTS), names)
    return names | dict(control_flow)


def _map(function: Callable[..., Tensor], xs: Tensor) -> Tensor:
    return torch.stack([function(x) for x in xs])


def _scan(step: Callable[..., Any], carry: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
    results = []
    for x in xs:
        carry, result = step(carry, x)
        results.append(result)
    return carry, torch.stack(results)


def _while_loop(goes_on: Callable[..., Any], step: Callable[..., Any], carried: Sequence[Tensor]) -> Sequence[Tensor]:
    while goes_on(*carried):
        carried = step(*carried)
    return carried


def _cond(chosen: Any, yes: Callable[..., Tensor], no: Callable[..., Tensor], operands: Sequence[Tensor]) -> Tensor:
    """Both branches run: torch.export takes a layer on values of another dtype, which no call of it does."""
    results = no(*operands), yes(*operands)
    return results[bool(chosen)]


PYTHONS: Final = MappingProxyType(
    {
        "cond": _cond,
        **{"map_rows": _map, "scan": _scan, "while_loop": _while_loop},
    }
)
"""Python's own control flow, which is what torch's means: torch compiles each use of its functions."""
