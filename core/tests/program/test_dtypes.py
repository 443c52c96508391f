"""The table of element types: complete, and in agreement with NumPy, ml_dtypes and torch."""

from __future__ import annotations

import pytest
import torch

from delegraph.aot.graph.dtypes import scalar_type_of, short_name
from delegraph.errors import InvalidType, LoweringError, NotSupported
from delegraph.program.dtypes import DTYPES, DtypeInfo, dtype_info, nbytes, numpy_dtype, scalar_type
from delegraph.program.schema import ScalarType


def test_every_code_has_its_row_in_order() -> None:
    assert [info.code for info in DTYPES] == list(ScalarType)
    assert len({info.name for info in DTYPES}) == len({info.short for info in DTYPES}) == len(DTYPES)


@pytest.mark.parametrize("info", DTYPES, ids=lambda info: info.name)
def test_the_libraries_agree(info: DtypeInfo) -> None:
    assert dtype_info(info.code) is info
    assert getattr(torch, info.name).itemsize * 8 == info.bits
    if info.numpy is None:
        with pytest.raises(NotSupported, match=f"{info.code.name} tensors have no NumPy dtype"):
            numpy_dtype(info.code)
        with pytest.raises(LoweringError, match="cannot stand in a program"):
            scalar_type_of(getattr(torch, info.name))
        return
    dtype = numpy_dtype(info.code)
    assert (dtype.name, dtype.itemsize * 8, scalar_type(dtype)) == (info.name, info.bits, info.code)
    assert scalar_type_of(getattr(torch, info.name)) is info.code


def test_sizes_are_whole_bytes() -> None:
    assert [nbytes(ScalarType.FLOAT, sizes) for sizes in ((), (0, 3), (2, 3))] == [4, 0, 24]
    assert nbytes(ScalarType.BITS4X2, (3,)) == 3


def test_names_that_are_not_in_it() -> None:
    with pytest.raises(InvalidType, match="NumPy dtype datetime64 has no ScalarType; known are bfloat16, bool"):
        scalar_type("datetime64")
    assert short_name(torch.bfloat16) == "bf16"
    assert short_name(torch.uint4) == "uint4"
