"""The small models whose graphs are kept before and after each pass, and the passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from delegraph.aot.graph.external_constants import set_external_tag
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.aot.passes.constant_folding import ConstantFolding
from delegraph.aot.passes.part_elision import PartElision
from delegraph.aot.passes.reinplacing import Reinplacing
from delegraph.aot.passes.view_elision import ViewElision
from delegraph.interfaces.graph_pass import ExportedProgramPassBase


class Functional(nn.Module):
    """A weight, a buffer, and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(8.0).reshape(2, 4))
        self.register_buffer("cache", torch.zeros(4, 4))
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


@dataclass(frozen=True)
class Case:
    """A function, the shapes of its inputs, the pass, and the `.ptd` that its weights go to."""

    graph_pass: ExportedProgramPassBase
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dynamic: bool = False
    external_tag: str | None = None

    def export(self) -> torch.export.ExportedProgram:
        args = tuple(torch.zeros(shape) for shape in self.shapes)
        dims = ({0: torch.export.Dim("n", max=8)}, *(None for _ in args[1:])) if self.dynamic else None
        program = torch.export.export(Functional(self.function), args, dynamic_shapes=(dims,) if dims else None)
        for node in ResolvedSignature.of(program).constants:
            set_external_tag(node, self.external_tag)
        return program


def _put(self: Functional, x: torch.Tensor) -> Any:
    self.cache.index_put_((torch.tensor([1]),), x)
    return self.cache.sum()


def _put_but_read_the_old_value(self: Functional, x: torch.Tensor) -> Any:
    new = self.cache.index_put((torch.tensor([1]),), x)
    product = self.cache * new
    self.cache.copy_(new)
    return product


def _put_twice(self: Functional, x: torch.Tensor) -> Any:
    self.cache.index_put_((torch.tensor([1]),), x)
    self.cache[2:3] = x
    return x + 1


def _view_of_a_state(self: Functional, x: torch.Tensor) -> Any:
    flat = self.cache.view(16) * 2
    self.cache.add_(x)
    return flat


def _cut_and_join(self: Functional, x: torch.Tensor) -> Any:
    first, second = (x + 1).split(2)
    return torch.cat([first.exp(), torch.cat([second.sin(), first.cos()]), x]) * 2


def _update_of_a_result(self: Functional, x: torch.Tensor) -> Any:
    one, other = x * 2, x * 3
    return one.index_put((torch.tensor([1]),), x[:1]), other.index_put((torch.tensor([1]),), x[:1]) + other


def _cond(self: Functional, x: torch.Tensor) -> Any:
    branches = (lambda x: (x * 2).view(8).neg(), lambda x: x.view(8).neg())
    return torch.cond(x.sum() > 0, *branches, (x,))


CASES = {
    "part_elision_cut_and_join": Case(PartElision(), _cut_and_join, ((4, 4),)),
    "part_elision_update": Case(PartElision(), _update_of_a_result, ((4, 4),)),
    "part_elision_inputs_of_the_caller": Case(PartElision(False, False), _cut_and_join, ((4, 4),)),
    "constant_folding_transposed_weight": Case(ConstantFolding(), lambda self, x: x @ self.weight.t(), ((3, 4),)),
    "constant_folding_equal_computations": Case(
        ConstantFolding(), lambda self, x: (x @ self.weight.t() + 1) @ self.weight.t().t(), ((3, 4),)
    ),
    "constant_folding_would_inflate": Case(
        ConstantFolding(), lambda self, x: x + torch.ones(64, 64).cumsum(0), ((64, 64),)
    ),
    "constant_folding_result_is_an_output": Case(ConstantFolding(), lambda self, x: (x, self.weight.exp()), ((3,),)),
    "reinplacing_update": Case(Reinplacing(), _put, ((1, 4),)),
    "reinplacing_old_value_is_read": Case(Reinplacing(), _put_but_read_the_old_value, ((1, 4),)),
    "reinplacing_chain": Case(Reinplacing(), _put_twice, ((1, 4),)),
    "view_elision_same_bytes": Case(ViewElision(), lambda self, x: (x + 1).view(2, 8).unsqueeze(0).neg(), ((4, 4),)),
    "view_elision_of_a_weight": Case(ViewElision(), lambda self, x: x + self.weight.view(8), ((8,),)),
    "view_elision_output": Case(ViewElision(), lambda self, x: (x + 1).view(2, 8), ((4, 4),)),
    "view_elision_of_a_state": Case(ViewElision(), _view_of_a_state, ((4, 4),)),
    "view_elision_other_bytes": Case(ViewElision(), lambda self, x: x.expand(4, 4) + x.permute(1, 0), ((1, 4),)),
    "view_elision_permuted_ones": Case(ViewElision(), lambda self, x: x.permute(1, 0, 2).neg(), ((1, 4, 4),)),
    "view_elision_dynamic_sizes": Case(
        ViewElision(), lambda self, x: ((x + 1).view(-1, 2) * 2, (x + 1).unsqueeze(0).neg()), ((4, 4),), True
    ),
    "view_elision_inputs_of_the_caller": Case(
        ViewElision(alloc_graph_input=False), lambda self, x: x.view(16).neg() + x.neg().view(16).neg(), ((4, 4),)
    ),
    "view_elision_external_weight": Case(
        ViewElision(), lambda self, x: x + self.weight.view(8), ((8,),), external_tag="weights"
    ),
    "view_elision_in_a_body": Case(ViewElision(), _cond, ((4, 2),)),
}
