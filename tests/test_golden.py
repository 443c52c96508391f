"""What lowering emits, to the last value and byte: a change of structure leaves these files as they are, or says why.

`pytest tests/test_golden.py --renew` writes them anew; the diff then shows what a change did to the programs.
"""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import pytest
import torch
from tests.interop.memories import memory_of
from tests.interop.modules import Case, cases

import delegraph
from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.program import deserialize_program, to_text

GOLDEN = Path(__file__).with_name("golden")
CASES = cases()


def _with_plain_weights(module: torch.nn.Module) -> torch.nn.Module:
    """Random weights depend on the processor in their last bits."""
    module = copy.deepcopy(module)
    for parameter in module.parameters():
        parameter.data = (torch.arange(parameter.numel()) % 17).reshape(parameter.shape) / 16
    return module


def _emit(case: Case) -> bytes:
    module = _with_plain_weights(case.module)
    exported = torch.export.export(module, case.calls[0], dynamic_shapes=case.dynamic_shapes)
    config = ExecutorchBackendConfig(
        external_constants=case.external_constants, memory=memory_of(case), emit_debug_data=False
    )  # lines of the cases are no part of a program
    return bytes(delegraph.lower(exported, config=config))


@pytest.mark.parametrize("name", CASES)
def test_the_program_is_the_same_to_the_byte(name: str, request: pytest.FixtureRequest) -> None:
    data = _emit(CASES[name])
    assert data == _emit(CASES[name]), "lowering twice gives two programs"
    text = f"sha256 {hashlib.sha256(data).hexdigest()}\n\n{to_text(deserialize_program(data))}"
    path = GOLDEN / f"{name.replace(' ', '_')}.txt"
    if request.config.getoption("--renew"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), "a new case: run with --renew"
    assert text == path.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {name.replace(" ", "_") for name in CASES}
