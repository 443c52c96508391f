"""`python -m plugins.executorch.tests.bridge.passes`: which passes of ExecuTorch's backends do here what they do there.

Every pass that is made with nothing, or with a program, runs on a few models, lowered to edge programs by ExecuTorch
and by us: what it does is the number of calls of each operator that come and go. The table in
`docs/executorch-backends.md` and the list beside this file are written anew. Run it in ExecuTorch's environment.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import typing_extensions
from torch import nn
from torch.export import ExportedProgram
from torch.nn import functional as F

from .models import conv_net
from .table import PAGE

FAMILIES = {
    "Apple (Metal)": "apple",
    "Arm": "arm/_passes",
    "Cadence": "cadence/aot",
    "Cortex-M": "cortex_m/passes",
    "NXP": "nxp",
    "Qualcomm": "qualcomm/_passes",
    "Samsung": "samsung/_passes",
    "Vulkan": "vulkan/_passes",
    "XNNPACK": "xnnpack/_passes",
    "common": "transforms",
}
ACTING = Path(__file__).with_name("passes_that_act.txt")
"""A pass a line: the wheel's module, the class, and a model on which it does something."""
MARKS = re.compile(r"(<!-- passes -->\n).*?(<!-- end -->)", re.DOTALL)

os.environ.setdefault("QNN_SDK_ROOT", os.sep)  # Qualcomm's package looks for its compiler, which passes do not need
if not hasattr(typing, "override"):  # Cadence's modules are for Python 3.12
    typing.override = typing_extensions.override  # type: ignore[attr-defined]


# ---- models ----------------------------------------------------------------------------------------


class Shapes(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.permute(0, 2, 3, 1).permute(0, 3, 1, 2).clone().reshape(2, 12, 8).reshape(2, 3, 4, 8)
        b = a.transpose(1, 2).transpose(1, 2)
        p, q = torch.split(b, 4, dim=3)
        c = torch.cat([p, q, p], 3).unsqueeze(0).mul(2).squeeze(0)
        d = torch.select_scatter(c, torch.zeros(2, 3, 12), 2, 1)
        e = torch.slice_scatter(d, torch.ones(2, 3, 2, 12), 2, 0, 2).permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2)
        f, g = torch.unbind(torch.stack([e, e]).sum(0), 0)
        h = F.pad(f, (1, 1, 2, 2)).repeat(1, 1, 2).permute(1, 0, 2).relu().permute(1, 0, 2)
        return h, torch.select(g, 0, 1), F.pad(g.unsqueeze(0), (1, 1), value=1.0), x[:, None].view(2, 3, 4, 8) + 0


class Sums(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        names = "tan acos asin atan cosh sinh asinh acosh atanh expm1 log1p log2 log10 trunc sign rsqrt reciprocal exp"
        results = [getattr(torch, name)(x) for name in [*names.split(), "square", "erf", "sigmoid", "neg", "round"]]
        names = "silu gelu hardsigmoid hardswish elu leaky_relu relu6 mish logsigmoid glu normalize softplus hardtanh"
        results += [getattr(F, name)(x) for name in names.split()]
        results += [x + 1, x - 2, 3 - x, x / 2, x * 2, x**2, x**3, x**0.5, x > 0.5, x == 1, torch.fmod(x, 2), x * x]
        results += [torch.div(x, y, rounding_mode=mode) for mode in ("floor", "trunc")] + [torch.floor_divide(x, y)]
        results += [torch.add(x, y, alpha=2), torch.sub(x, y, alpha=2), torch.maximum(x, y), torch.atan2(x, y)]
        results += [x.var(1), x.std(1), x.mean(1), x.sum((0, 1)), x.amax(1), x.max(1)[0], x.min(1)[1], x.argmax(1)]
        results += [x.cumsum(1), (x > 0).any(1), (x > 0).any(), x.softmax(1), x.log_softmax(1), x.clamp(0, 1), x.norm()]
        results += [torch.where(x > 0, x, 0.0), x.masked_fill(x > 1, 2.0), torch.full((3, 4), 1.0) + x, x.logit(1e-3)]
        results += [torch.full_like(x, 2.0), torch.fill(x, 3.0), torch.addcmul(x, y, y), torch.cdist(x, y), x.clone()]
        return tuple(results)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.line = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv1d(8, 4, 3)
        self.up, self.deep = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(8, 8, 3, groups=8)
        self.layer, self.group, self.rms = nn.LayerNorm(16), nn.GroupNorm(2, 8), nn.RMSNorm(16)
        self.fc, self.head, self.words, self.slope = (
            nn.Linear(16, 16),
            nn.Linear(16, 8),
            nn.Embedding(9, 16),
            nn.PReLU(),
        )

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.relu(self.norm(self.conv(x)))
        pools = [F.max_pool2d(y, 2), F.avg_pool2d(y, 2), F.adaptive_avg_pool2d(y, 1), y.mean((2, 3), keepdim=True)]
        y = F.pixel_unshuffle(self.group(self.slope(F.pixel_shuffle(self.up(pools[0]).repeat(1, 4, 1, 1), 2))), 2)
        w = self.rms(self.layer(self.fc(self.words(words))))
        heads = w.view(1, 6, 2, 8).transpose(1, 2)
        attended = F.scaled_dot_product_attention(heads, heads, heads)
        scores = torch.bmm(w, w.transpose(1, 2)) @ self.head(w)
        more = torch.addmm(scores[0, :, :6], scores[0], scores[0].t()), w.index_select(1, words[0, :2])
        return (
            *pools,
            y,
            self.deep(pools[0]),
            F.avg_pool1d(self.line(y.flatten(2)[:, :8]), 2),
            attended,
            scores,
            *more,
        )


@cache
def model(name: str) -> ExportedProgram:
    """An exported program. "int8" is quantized by XNNPACK's quantizer."""
    torch.manual_seed(0)
    x = torch.rand(3, 4) + 0.1
    made: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
        "shapes": lambda: (Shapes(), (torch.randn(2, 3, 4, 8),)),
        "sums": lambda: (Sums(), (x, x * 2)),
        "layers": lambda: (Layers(), (torch.randn(1, 3, 16, 16), torch.arange(6)[None])),
        "int8": _quantized,
    }
    module, args = made[name]()
    return torch.export.export(module.eval() if name != "int8" else module, args, strict=True)


MODELS = ("shapes", "sums", "layers", "int8")


def _quantized() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module, args = conv_net()
    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
    prepared = prepare_pt2e(
        torch.export.export(module, args, strict=True).module(check_guards=False),
        xnnpack_quantizer.XNNPACKQuantizer().set_global(config),
    )
    prepared(*args)
    return convert_pt2e(prepared), args


# ---- what a pass does ------------------------------------------------------------------------------


@cache
def edge(name: str, package: str) -> Any:
    """The edge program of a model, by `executorch` or by `delegraph_executorch`. Rules of the dialect are not checked:
    passes of backends leave it."""
    exir = import_module(f"{package}.exir")
    return exir.to_edge(deepcopy(model(name)), compile_config=exir.EdgeCompileConfig(_check_ir_validity=False))


def calls(manager: Any) -> Counter[str]:
    """How often each operator is called, and how many inputs there are."""
    nodes = manager.exported_program().graph.nodes
    return Counter(getattr(node.target, "__name__", "a node") if node.op != "placeholder" else "" for node in nodes)


def effect(kind: type, name: str, package: str) -> dict[str, int]:
    """How many calls of each operator a pass adds, or takes away, in a model. Raises what the pass does."""
    from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification

    manager = deepcopy(edge(name, package))
    before = calls(manager)
    with TosaLoweringContext(TosaSpecification.create_from_string("TOSA-1.0+INT+FP")):  # for Arm's
        made = kind(*[manager.exported_program() for _ in required(kind)])
        after = calls(manager.transform([made]))
    return {target: n for target in {*before, *after} if (n := after[target] - before[target])}


def required(kind: type) -> list[str]:
    """The names of the arguments that a pass cannot be made without."""
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


# ---- all of them -----------------------------------------------------------------------------------


def passes(folder: str) -> Iterator[type | str]:
    """The pass classes in a folder of `executorch.backends`, and, by module, why one cannot be imported."""
    from executorch.exir.pass_base import ExportedProgramPassBase
    from torch.fx.passes.infra.pass_base import PassBase

    root = Path(import_module("executorch.exir").__file__ or "").parents[1]
    for path in sorted((root / "backends" / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if {"test", "tests"} & {*parts} or "Pass" not in path.read_text("utf-8"):
            continue
        try:
            module = import_module("executorch." + ".".join(parts).removesuffix(".__init__"))
        except (Exception, SystemExit) as error:  # a module may end the process that lacks a tool
            yield f"{'.'.join(parts)}: {type(error).__name__}: {error}"
            continue
        kinds = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
        bases = (PassBase, ExportedProgramPassBase)
        yield from (kind for kind in kinds if issubclass(kind, bases) and not inspect.isabstract(kind))


def outcome(kind: type, name: str) -> str:
    """How what a pass does to our program compares with what it does to ExecuTorch's."""
    done: list[dict[str, int] | None] = []
    for package in ("executorch", "delegraph_executorch"):
        try:
            done.append(effect(kind, name, package))
        except Exception:
            done.append(None)
    if done[0] is None:
        return "raises there"
    if done[1] is None:
        return "raises here alone"
    return "nothing" if not any(done) else "the same" if done[0] == done[1] else "differs"


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    rows, acting = [], []
    for family, folder in FAMILIES.items():
        entries = list(passes(folder))
        kinds = [entry for entry in entries if isinstance(entry, type)]
        made = [kind for kind in kinds if {*required(kind)} <= {"exported_program", "edge_program"}]
        told = {kind: {name: outcome(kind, name) for name in MODELS} for kind in made}
        for kind, by_model in told.items():
            print(kind.__module__, kind.__name__, by_model, flush=True)
            same = [name for name, each in by_model.items() if each == "the same"]
            acting += [f"{kind.__module__} {kind.__name__} {same[0]}"] if same else []
        order = ("raises here alone", "differs", "the same", "raises there", "nothing")
        worst = Counter(next(each for each in order if each in by_model.values()) for by_model in told.values())
        counts = " | ".join(str(worst[each]) for each in ("the same", "differs", "raises here alone", "nothing"))
        rows.append(f"| {family} | {len(kinds)} | {counts} | {worst['raises there'] + len(kinds) - len(made)} |")
        print(rows[-1], *[entry for entry in entries if isinstance(entry, str)], sep="\n", flush=True)
    head = "| passes | import | act as there | differ | raise here alone | have nothing to do | not compared |\n"
    table = head + "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    PAGE.write_text(MARKS.sub(lambda m: m[1] + table + m[2], PAGE.read_text("utf-8")), "utf-8")
    ACTING.write_text("".join(f"{line}\n" for line in acting), "utf-8")


if __name__ == "__main__":
    main()
