"""A sound ETRecord, member by member: what the tests of hostile ones change, and from where fuzzing starts."""

from __future__ import annotations

import io
from functools import cache
from zipfile import ZipFile

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from delegraph.aot import ETRecord, ExecutorchBackendConfig, parse_etrecord, to_edge

__all__ = ["PROGRAM", "Members", "exported", "members", "parsed", "zipped"]

PROGRAM = "exported_program"
Members = dict[str, bytes]


class Model(nn.Module):
    """A weight, a dynamic size with a guard on it, a body of control flow, a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mode: str, *, y: dict[str, torch.Tensor]) -> torch.Tensor:
        torch._check(x.shape[0] % 2 == 0)
        x = torch.cond(x.sum() > 0, lambda z: z + 1, lambda z: z - 1, (self.linear(x),))
        return x.reshape(-1, 2, 4) * y["k"].sum()


@cache
def exported() -> ExportedProgram:
    """The program; made once."""
    with torch.no_grad():  # else torch warns of gradients in the branches
        return export(
            Model(),
            (torch.randn(8, 4), "fast"),
            {"y": {"k": torch.randn(6)}},
            dynamic_shapes={"x": {0: Dim.AUTO(max=16)}, "mode": None, "y": {"k": {0: Dim.AUTO(max=16)}}},
        )


@cache
def members() -> Members:
    """The members of its record, by their names."""
    record = to_edge(exported(), generate_etrecord=True).to_executorch(ExecutorchBackendConfig(check_kernels=False))
    made = record.get_etrecord()
    made.update_representative_inputs([torch.ones(2, 4)])
    made.update_reference_outputs([[torch.ones(3)]])
    file = io.BytesIO()
    made.save(file)
    with ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: Members) -> bytes:
    """A zip of them, as it is written."""
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def parsed(members: Members) -> ETRecord:
    """The record in such a zip."""
    return parse_etrecord(io.BytesIO(zipped(members)))
