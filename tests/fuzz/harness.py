"""A file from a stranger -> nothing: it is read, told of, loaded and run, and only our exceptions come out.

Of an ETRecord the programs are read; they are torch's, and nothing here runs them.
"""

from __future__ import annotations

import io
import tempfile
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.blobs import read_blob

from delegraph.aot import parse_etrecord
from delegraph.devtools import load_bundled_program
from delegraph.errors import DelegraphError
from delegraph.interfaces.memory_hierarchy import read_memory_hierarchy
from delegraph.plugins.registry import PluginRegistry
from delegraph.program import deserialize_flat_tensor, to_text
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.etdump import deserialize_etdump
from delegraph.runtime import Borrowing, Limits, Runtime
from delegraph.runtime.values.writes import changed_inputs
from delegraph_cpu.runtime.backend import CpuBackend
from delegraph_dsp.device import device_of
from delegraph_npu.device import read_device
from delegraph_portable import library

__all__ = ["exercise"]

LIMITS = Limits(instructions=200, seconds=10, planned_bytes=2**22, unplanned_bytes=2**22, output_bytes=2**22)


@cache
def runtime() -> Runtime:
    """Portable kernels and the cpu backend, whatever else is installed."""
    return Runtime(kernels=[library], backends={"CpuBackend": CpuBackend()}, plugins=PluginRegistry(), limits=LIMITS)


def exercise(data: bytes) -> bool:
    """Do everything with `data` that can be done with a file of its kind; whether it was taken."""
    try:
        if data[:7] in (b"DLGBLOB", b"DLGRCPU"):
            read_blob(data)
        elif data[:2] == b"PK":
            parse_etrecord(io.BytesIO(data))
        elif data[4:8] == b"FT01":
            deserialize_flat_tensor(data)
        elif data[4:8] == b"BP08":
            load_bundled_program(data)
        elif data[8:12] == b"ED00":
            deserialize_etdump(data)
        elif data[:1] == b"#":
            _describe(data)
        else:
            _run(data)
    except DelegraphError as error:
        told = str(error)
    else:
        return True
    assert all(character.isprintable() or character in "\n\t" for character in told)
    return False


def _describe(data: bytes) -> None:
    """A TOML file, whose first line says of what: of a machine, or of memories."""
    kind = data.partition(b"\n")[0]
    if kind == b"# memories":
        _MEMORIES.write_bytes(data)
        read_memory_hierarchy(_MEMORIES)
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # a backend has a text
    device_of(text, "it") if kind == b"# dsp" else read_device(text, "it")


_MEMORIES = Path(tempfile.mkdtemp(prefix="delegraph-fuzz-")) / "memories.toml"


def _run(data: bytes) -> None:
    program = runtime().load_program(data)
    to_text(program.records)
    before = [bytes(constant) for constant in program.records.constants]
    try:
        for name in sorted(program.method_names):
            # a file may say that it changes an array of the caller's, whom a copy keeps from that
            changes = bool(changed_inputs(program.plan(name)))
            method = program.load_method(name, borrowing=Borrowing(inputs="copy" if changes else "auto"))
            inputs = [_input(method.metadata, index) for index in range(method.metadata.num_inputs())]
            given = [value.copy() if isinstance(value, np.ndarray) else value for value in inputs]
            method.execute(inputs)
            method.execute(inputs)
            for value, same in zip(inputs, given, strict=True):
                np.testing.assert_array_equal(value, same)  # as it was: nothing of the caller's is written
    finally:
        assert [bytes(constant) for constant in program.records.constants] == before


def _input(metadata: Any, index: int) -> Any:
    """Zeros of the largest shape, or the number that the file has."""
    record = metadata._plan.values[metadata._plan.inputs[index]]
    sizes = getattr(record, "sizes", None)
    if sizes is None:
        return getattr(record, "value", None)
    if prod(sizes) > 2**20:
        raise DelegraphError("more than is made here")
    return np.zeros(sizes, numpy_dtype(record.scalar_type))
