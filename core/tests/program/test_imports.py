"""Reading a program costs little: what its import pulls in, and that the public names are there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import delegraph.program


def modules_after(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_imports_nothing_of_it() -> None:
    assert {
        name for name in modules_after("import delegraph.program") if name.startswith("delegraph.program.")
    } == set()


def test_reading_needs_no_library_at_all() -> None:
    modules = modules_after("from delegraph.program import deserialize_program, to_text, deserialize_flat_tensor")
    assert modules & {"torch", "numpy", "flatbuffers", "ml_dtypes", "json", "tempfile", "hashlib", "logging"} == set()


@pytest.mark.parametrize("name", delegraph.program.__all__)
def test_public_names_are_there(name: str) -> None:
    member = getattr(delegraph.program, name)
    assert getattr(member, "__name__", name) == name  # constants have none


def test_public_names_are_pinned() -> None:
    assert sorted(delegraph.program.__all__) == dir(delegraph.program)
    assert delegraph.program.__all__ == [
        "DTYPES",
        "TARGET_DEVICE_COMPILE_SPEC_KEY",
        "DebugData",
        "Device",
        "ExternalData",
        "FlatTensor",
        "MemoryMap",
        "Program",
        "ScalarType",
        "SegmentSource",
        "SerializationConfig",
        "SourceNode",
        "alternatives_of",
        "debug_data_of",
        "dense_strides",
        "deserialize_flat_tensor",
        "deserialize_program",
        "from_text",
        "memory_map",
        "methods_of",
        "nbytes",
        "numpy_dtype",
        "read_tables",
        "scalar_type",
        "sealed",
        "serialize_flat_tensor",
        "serialize_program",
        "sign_file",
        "table_layouts",
        "target_device",
        "to_text",
        "verify_program",
        "write_flat_tensor",
        "write_program",
        "write_tables",
    ]


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match=r"module 'delegraph\.program' has no attribute 'nothing'"):
        delegraph.program.nothing  # noqa: B018
