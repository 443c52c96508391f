"""Every operator of torch's database, in every dtype, at the edges: this repository's plug-ins (`make numerics`)."""

from __future__ import annotations

import pytest
from backends.providers.tests.webgpu.conftest import use_swiftshader
from tests.numerics.subjects import FOLDER, chosen, subject_called

from delegraph_testkit.numerics.contract import breaches
from delegraph_testkit.numerics.edges import DTYPES
from delegraph_testkit.numerics.report import save_cells
from delegraph_testkit.numerics.sweep import Cell, sweep
from delegraph_testkit.operator_samples import entries


@pytest.mark.numerics
@pytest.mark.parametrize("entry", entries())
def test_every_dtype(entry: str) -> None:
    use_swiftshader()
    subjects, told = chosen(), []
    cells: dict[str, dict[str, Cell]] = {subject.name: {} for subject in subjects}
    for dtype in DTYPES:
        for name, cell in sweep(subjects, entry, dtype).items():
            cells[name][dtype] = cell
            told += [f"{name}: {told}" for told in breaches(subject_called(name).claims, entry, dtype, cell)]
    for name, by_dtype in cells.items():
        save_cells(FOLDER, name, entry, by_dtype)
    assert not told, "\n".join(told)


QUICK = {
    "int64": ["clamp", "maximum", "sign", "floor_divide", "amax", "sort", "gt", "sum"],
    "int32": ["minimum", "remainder", "max reduction_with_dim", "eq"],
    "float32": ["exp", "log1p", "maximum", "argmax", "topk", "softmax"],
}
"""What went wrong once, on one backend or another."""


@pytest.mark.parametrize(("entry", "dtype"), [(entry, dtype) for dtype, names in QUICK.items() for entry in names])
def test_a_few(entry: str, dtype: str) -> None:
    for name, cell in sweep([subject_called("cpu"), subject_called("portable")], entry, dtype).items():
        assert cell.compared, f"{name}: {cell.open or cell.declined}"
        assert not list(breaches(subject_called(name).claims, entry, dtype, cell))
