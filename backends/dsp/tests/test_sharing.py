"""Constants that several partitions have: in the file once, whatever else each of them has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from backends.dsp.tests.harness import Grid
from backends.dsp.tests.test_codes import INT8, INT8_OUT, Linear
from torch import nn

import delegraph
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import BackendInitContext
from delegraph.program import deserialize_program
from delegraph_dsp.binary import FORMAT, pack, unpack
from delegraph_dsp.disassembler import disassemble
from delegraph_dsp.program import Program
from delegraph_dsp.runtime.backend import DspBackend

INNER, COLUMNS = 256, 192

WEIGHT_NBYTES = INNER * COLUMNS


class Method(nn.Module):
    """A linear layer with the weights of all `Linear` of its sizes, on grids of its own."""

    def __init__(self, out: Grid = INT8_OUT, columns: int = COLUMNS) -> None:
        super().__init__()
        self.linear = Linear(INT8, out, INNER, columns)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.linear(codes)  # type: ignore[no-any-return]


METHODS: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "one": (Method(), INT8.codes(1, INNER)),
    "many": (Method(Grid(0.1, 2)), INT8.codes(40, INNER, seed=1)),
    "other": (Method(columns=64), INT8.codes(3, INNER, seed=2)),
}


def lowered(*names: str) -> bytes:
    exported = {name: torch.export.export(METHODS[name][0].eval(), (METHODS[name][1],)) for name in names}
    return bytes(delegraph.lower(exported, backends=["dsp"]))


def programs(file: bytes) -> list[Program]:
    return [unpack(blob) for blob in deserialize_program(file).delegate_data]


def result(file: bytes, name: str) -> np.ndarray[Any, Any]:
    return np.asarray(delegraph.load(file, method=name)(METHODS[name][1].numpy()))


def test_methods_with_grids_of_their_own_share_weights() -> None:
    """Each computes what it does in a file of its own."""
    together = lowered("one", "many")
    first, second = programs(together)
    assert first.constants_key == second.constants_key != ""
    alone = {name: lowered(name) for name in ("one", "many")}
    assert len(together) < sum(map(len, alone.values())) - WEIGHT_NBYTES
    for name, file in alone.items():
        np.testing.assert_array_equal(result(together, name), result(file, name))


def test_who_shares_nothing_keeps_its_constants() -> None:
    together = lowered("one", "many", "other")
    assert [bool(program.constants_key) for program in programs(together)] == [True, True, False]
    np.testing.assert_array_equal(result(together, "other"), result(lowered("other"), "other"))
    assert all(not program.constants_key for program in programs(lowered("one", "other")))


def test_a_key_in_the_blob() -> None:
    blob = next(iter(deserialize_program(lowered("one", "many")).delegate_data))
    program = unpack(blob)
    with pytest.raises(DelegateInvalidCompatibility, match=r"bytes of named data 'DspBackend/.*the program has none"):
        DspBackend().init(BackendInitContext("forward"), blob, [])
    data = bytes(program.regions[0].nbytes)
    whole = unpack(blob, {program.constants_key: data})
    assert bytes(whole.constants) == data
    assert pack(whole) == bytes(blob)
    assert "region 0: constants" in disassemble(blob)
    nameless = FORMAT.unpack(blob)
    sections = {name: nameless.view(name) for name in nameless.names}
    with pytest.raises(DelegateInvalidCompatibility, match="it has no section 'constants'"):
        unpack(FORMAT.pack({**nameless.header, "constants_key": ""}, sections))
