"""Bundled programs: what goes in comes out, where its bytes lie, what is compared, and what is refused."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from core.tests.program.flatc import bundled_program_generated as flatc

import delegraph
from delegraph.devtools import (
    BundledProgram,
    MethodTestCase,
    MethodTestSuite,
    load_bundled_program,
    serialize_bundled_program,
    verify_bundled_program,
    write_bundled_program,
)
from delegraph.errors import AccessFailed, InvalidArgument, InvalidProgram, InvalidType, RuntimeFault
from delegraph.program import FlatTensor, deserialize_program, serialize_flat_tensor
from delegraph.runtime import KernelLibrary, Runtime

from .conftest import Bundle, X

MIXED = (
    np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16),
    np.array([-128, 0, 127], np.int8),
    np.array(True),
    -7,
    True,
    0.5,
)


# ---- to bytes and back -----------------------------------------------------------------------------


def test_what_was_bundled_is_read(bundle: Bundle, pte: bytes) -> None:
    read = load_bundled_program(serialize_bundled_program(bundle(MethodTestCase(MIXED, MIXED), method="mixed")))
    assert bytes(read.buffer) == pte
    (suite,) = read.method_test_suites
    assert suite.method_name == "mixed"
    for values in (suite.test_cases[0].inputs, suite.test_cases[0].expected_outputs):
        assert [type(value) for value in values[3:]] == [int, bool, float]
        for value, expected in zip(values, MIXED, strict=True):
            assert np.asarray(value).dtype == np.asarray(expected).dtype
            np.testing.assert_array_equal(value, expected)


def test_sources(bundle: Bundle, pte: bytes, tmp_path: Path) -> None:
    """A program from bytes, a path, a file; and a bundled program from each."""
    (tmp_path / "m.pte").write_bytes(pte)
    suites = [MethodTestSuite("forward", [MethodTestCase((X,))])]
    expected = serialize_bundled_program(BundledProgram(pte, suites))
    for program in (tmp_path / "m.pte", str(tmp_path / "m.pte"), io.BytesIO(pte), memoryview(pte)):
        assert serialize_bundled_program(BundledProgram(program, suites)) == expected
    named = BundledProgram(None, suites, pte_file_path=str(tmp_path / "m.pte"))
    write_bundled_program(named, tmp_path / "m.bpte")
    assert (tmp_path / "m.bpte").read_bytes() == expected
    for source in (tmp_path / "m.bpte", str(tmp_path / "m.bpte"), io.BytesIO(expected), bytearray(expected)):
        assert bytes(load_bundled_program(source).buffer) == pte


def test_the_layout_of_the_file(bundle: Bundle, pte: bytes) -> None:
    """The program is aligned to 32 bytes, a tensor's data to 16, so that both are used where they lie."""
    data = serialize_bundled_program(bundle(MethodTestCase((X,), (2 * X,))))
    assert data[4:8] == b"BP08"
    assert data.index(pte) % 32 == 0
    assert data.index(X.tobytes()) % 16 == 0


def test_flatc_reads_what_we_write(bundle: Bundle, pte: bytes) -> None:
    read = flatc.BundledProgramT.InitFromPackedBuf(
        serialize_bundled_program(bundle(MethodTestCase(MIXED), method="mixed"))
    )
    assert (read.version, bytes(read.program)) == (2, pte)
    (case,) = read.methodTestSuites[0].testCases
    assert (read.methodTestSuites[0].methodName, case.expectedOutputs) == (b"mixed", [])
    assert [value.valType for value in case.inputs] == [1, 1, 1, 2, 3, 4]
    first = case.inputs[0].val
    assert (first.scalarType, list(first.sizes), list(first.dimOrder)) == (15, [2, 2], [0, 1])
    assert bytes(first.data) == MIXED[0].tobytes()
    assert [case.inputs[3].val.intVal, case.inputs[4].val.boolVal, case.inputs[5].val.doubleVal] == [-7, True, 0.5]


def test_tensors_lie_as_the_method_has_them(bundle: Bundle) -> None:
    """Its input lies channels last; the caller's array need not."""
    image = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    for given in (image, np.asfortranarray(image), image[::-1]):
        bundled = bundle(MethodTestCase((given,)), method="image")
        stored = bundled.suites[0].test_cases[0].inputs[0]
        assert stored.dim_order == (0, 2, 3, 1)
        assert bytes(stored.data) == image.transpose(0, 2, 3, 1).tobytes()
        (read,) = load_bundled_program(serialize_bundled_program(bundled)).method_test_suites[0].test_cases[0].inputs
        np.testing.assert_array_equal(read, image)


def test_arguments_are_flattened() -> None:
    nested = MethodTestCase(({"a": X, "b": [1, (2.5,)]}, True), {"y": X})
    assert [type(value) for value in nested.inputs] == [np.ndarray, int, float, bool]
    assert len(nested.expected_outputs) == 1
    assert MethodTestCase(X, X).inputs == [X]


def test_suites_are_sorted_by_method(pte: bytes) -> None:
    suites = [MethodTestSuite("mixed", [MethodTestCase(MIXED)]), MethodTestSuite("forward", [])]
    bundled = BundledProgram(pte, suites)
    assert [suite.method_name for suite in bundled.method_test_suites] == ["forward", "mixed"]
    assert repr(bundled) == "BundledProgram(forward: 0 cases, mixed: 1 cases)"


# ---- verifying -------------------------------------------------------------------------------------


def test_cases_are_run_and_compared(bundle: Bundle) -> None:
    off = 2 * X
    off[1, 2] += 0.5
    cases = MethodTestCase((X,), (2 * X,)), MethodTestCase((X,), (off,)), MethodTestCase((X,))
    results = verify_bundled_program(load_bundled_program(serialize_bundled_program(bundle(*cases))))
    assert [(result.index, result.verdict, result.ok) for result in results] == [
        (0, "ok", True),
        (1, "differs", False),
        (2, "ran", True),
    ]
    np.testing.assert_array_equal(results[1].outputs[0], 2 * X)
    (comparison,) = results[1].comparisons
    assert (comparison.elements, comparison.mismatched, comparison.max_absolute_error) == (6, 1, 0.5)
    assert results[1].reason == "output 0: 1 of 6 elements differ, by up to 0.5 (relative 0.0476)"


@pytest.mark.parametrize(
    ("rtol", "atol", "ok"), [(0.05, 0.0, True), (0.0, 0.5, True), (0.04, 0.0, False), (0, 0.4, False)]
)
def test_tolerances(bundle: Bundle, rtol: float, atol: float, ok: bool) -> None:
    expected = 2 * X
    expected[1, 2] += 0.5  # 10.5 where 10 comes out: 0.0476 of it
    (result,) = verify_bundled_program(bundle(MethodTestCase((X,), (expected,))), rtol=rtol, atol=atol)
    assert result.ok == ok


def test_nan_and_infinities_equal_themselves(bundle: Bundle) -> None:
    x = np.array([[np.nan, np.inf, -np.inf], [1, 2, 3]], np.float32)
    (same,) = verify_bundled_program(bundle(MethodTestCase((x,), (2 * x,))))
    assert same.ok
    other = 2 * x
    other[0] = [0, -np.inf, np.nan]
    (differs,) = verify_bundled_program(bundle(MethodTestCase((x,), (other,))), rtol=1e9, atol=1e9)
    assert differs.comparisons[0].mismatched == 3


def test_integers_and_scalars_are_compared_exactly(bundle: Bundle) -> None:
    (result,) = verify_bundled_program(bundle(MethodTestCase(MIXED, MIXED), method="mixed"))
    assert result.verdict == "ok", result.reason
    others: tuple[Any, ...] = (MIXED[0], np.array([-128, 1, 127], np.int8), np.array(False), -6, False, 0.25)
    (result,) = verify_bundled_program(bundle(MethodTestCase(MIXED, others), method="mixed"), rtol=10, atol=10)
    assert [comparison.ok for comparison in result.comparisons] == [True, False, False, False, False, True]


def test_another_shape_than_expected(bundle: Bundle) -> None:
    """Its upper bound fits, so that it shows only when it runs."""
    expected = (MIXED[0], np.array([1, 2], np.int8), *MIXED[2:])
    (result,) = verify_bundled_program(bundle(MethodTestCase(MIXED, expected), method="mixed"))
    assert result.reason == "output 1: expected int8[2], got int8[3]"


def test_a_fault_is_the_case_s_result(bundle: Bundle) -> None:
    broken = KernelLibrary("broken")

    @broken.kernel("test::op")
    def fail(context: Any, x: Any, out: Any) -> None:
        raise ZeroDivisionError("told to fail")

    cases = MethodTestCase((X,), (X,)), MethodTestCase((X,))
    results = verify_bundled_program(bundle(*cases), runtime=Runtime(kernels=[broken]))
    assert [result.verdict for result in results] == ["failed", "failed"]
    assert isinstance(results[0].fault, RuntimeFault)
    assert "told to fail" in results[0].reason


def test_chosen_methods(pte: bytes) -> None:
    suites = [MethodTestSuite("forward", [MethodTestCase((X,))]), MethodTestSuite("mixed", [MethodTestCase(MIXED)])]
    bundled = BundledProgram(pte, suites)
    assert [result.method_name for result in verify_bundled_program(bundled)] == ["forward", "mixed"]
    assert [result.method_name for result in verify_bundled_program(bundled, methods=["mixed"])] == ["mixed"]
    with pytest.raises(InvalidArgument, match="no test cases for a method 'image'; there are some for forward, mixed"):
        verify_bundled_program(bundled, methods=["image"])


# ---- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "case", "message"),
    [
        ("forward", MethodTestCase(()), "test case 0, inputs: the method has 1, the case 0"),
        ("forward", MethodTestCase((X,), (X, X)), "expected outputs: the method has 1, the case 2"),
        ("forward", MethodTestCase((X.astype(int),)), r"input 0: expected float32\[2, 3\], got dtype int64"),
        ("forward", MethodTestCase((X[:1],)), r"input 0: expected float32\[2, 3\], got shape \[1, 3\]"),
        ("forward", MethodTestCase((X,), (1,)), r"expected output 0: expected float32\[2, 3\], got int"),
        ("mixed", MethodTestCase((*MIXED[:3], -8, *MIXED[4:])), "input 3: expected -7, got -8: the model was exported"),
        ("mixed", MethodTestCase(MIXED, (*MIXED[:3], 1.5, *MIXED[4:])), "expected output 3: expected a int, got float"),
        (
            "optional",
            MethodTestCase((X, X)),
            "input 0: the method has a Null there, which a bundled",
        ),
        ("fordward", MethodTestCase(X), "for a method 'fordward'; the program has forward, image, mixed, optional"),
    ],
)
def test_a_case_that_does_not_fit(bundle: Bundle, method: str, case: MethodTestCase, message: str) -> None:
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        bundle(case, method=method)


@pytest.mark.parametrize(("values", "kind"), [((X, None), "NoneType"), (["text"], "str")])
def test_what_a_case_cannot_hold(values: Any, kind: str) -> None:
    with pytest.raises(InvalidType, match=f"input [01] is a {kind}; a bundled program holds tensors"):
        MethodTestCase(values)


def test_neither_or_both_programs(pte: bytes) -> None:
    for program, path in ((None, None), (pte, "m.pte")):
        with pytest.raises(InvalidArgument, match="either executorch_program or pte_file_path"):
            BundledProgram(program, [], path)


def test_what_is_not_a_bundled_program(bundle: Bundle, pte: bytes, tmp_path: Path) -> None:
    for data in (pte, b"", b"BP0", bytes(100)):
        with pytest.raises(InvalidProgram, match=r"not a \.bpte.*is it a \.pte"):
            load_bundled_program(data)
    with pytest.raises(AccessFailed):
        load_bundled_program(tmp_path / "none.bpte")


def test_a_bundled_program_where_a_program_is_due(bundle: Bundle) -> None:
    """And a `.ptd` there."""
    data = serialize_bundled_program(bundle(MethodTestCase((X,))))
    with pytest.raises(InvalidProgram, match=r"it is a bundled program \(\.bpte\).*`delegraph run` verifies it"):
        delegraph.load(data)
    assert deserialize_program(load_bundled_program(data).buffer).execution_plan[0].name == "forward"
    with pytest.raises(InvalidProgram, match=r"it is a \.ptd.*data_path"):
        delegraph.load(serialize_flat_tensor(FlatTensor({})))


def flatc_file(bundled: BundledProgram) -> Any:
    return flatc.BundledProgramT.InitFromPackedBuf(serialize_bundled_program(bundled))


def flatc_bytes(file: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder()
    builder.Finish(file.Pack(builder), file_identifier=b"BP08")
    return bytes(builder.Output())


def damaged(bundled: BundledProgram, **fields: Any) -> bytes:
    """The file with other fields in the tensor that its first case begins with."""
    file = flatc_file(bundled)
    for name, value in fields.items():
        setattr(file.methodTestSuites[0].testCases[0].inputs[0].val, name, value)
    return flatc_bytes(file)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": list(bytes(23))}, r"inputs\[0\]\.val\.data has 23 bytes, its tensor 24"),
        ({"sizes": [2, -3]}, r"method_test_suites\[0\]\.test_cases\[0\]\.inputs\[0\]\.val\.sizes"),
        ({"dimOrder": [0, 0]}, r"inputs\[0\]\.val\.dim_order"),
        ({"scalarType": 99}, "ScalarType has no code 99"),
        ({"sizes": [3, 2]}, r"the cases do not fit the program: method 'forward', test case 0, input 0"),
    ],
)
def test_damaged_files(bundle: Bundle, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        load_bundled_program(damaged(bundle(MethodTestCase((X,))), **fields))


def test_more_data_than_the_tensor_has(bundle: Bundle) -> None:
    """ExecuTorch writes the whole storage that a tensor is a view of."""
    data = damaged(bundle(MethodTestCase((X,))), data=[*X.tobytes(), *bytes(8)])
    (read,) = load_bundled_program(data).method_test_suites[0].test_cases[0].inputs
    np.testing.assert_array_equal(read, X)


def test_a_value_without_a_kind_and_another_version(bundle: Bundle) -> None:
    file = flatc_file(bundle(MethodTestCase((X,))))
    file.methodTestSuites[0].testCases[0].inputs[0] = flatc.ValueT()
    with pytest.raises(InvalidProgram, match=r"inputs\[0\]\.val has the type 0; known are 1 \(Tensor\) to 4"):
        load_bundled_program(flatc_bytes(file))
    file.version = 3
    with pytest.raises(InvalidProgram, match=r"version is 3; this version of Delegraph reads \.bpte"):
        load_bundled_program(flatc_bytes(file))


def test_cut_short(bundle: Bundle) -> None:
    data = serialize_bundled_program(bundle(MethodTestCase(MIXED, MIXED), method="mixed"))
    for size in range(8, len(data) - 1, 7):
        with pytest.raises(InvalidProgram):
            load_bundled_program(data[:size])


def test_changed_bytes_give_cases_or_invalid_program(bundle: Bundle) -> None:
    """Whatever stands in the file, nothing but our own error comes out, and no byte outside of it is read."""
    data = serialize_bundled_program(bundle(MethodTestCase(MIXED, MIXED), method="mixed"))
    taken = 0
    rng = np.random.default_rng(0)
    for _ in range(2000):
        changed = bytearray(data)
        at = int(rng.integers(len(data) - 4))
        struct.pack_into(
            "<I", changed, at, int(rng.choice([0, 1, 2**31 - 1, 2**32 - 1, len(data), int(rng.integers(256))]))
        )
        try:
            read = load_bundled_program(changed)
        except RuntimeFault:
            continue
        taken += 1
        assert serialize_bundled_program(read)
    assert 20 < taken < 1900


def test_more_than_a_flatbuffer_holds(pte: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.devtools.bundled_program.file.MAX_SIZE", 100)
    with pytest.raises(InvalidArgument, match="a bundled program no more than 100 in all; keep the weights"):
        serialize_bundled_program(BundledProgram(pte, []))


def test_none_of_it_needs_torch(bundle: Bundle, tmp_path: Path) -> None:
    write_bundled_program(bundle(MethodTestCase(MIXED, MIXED), method="mixed"), tmp_path / "m.bpte")
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from delegraph.devtools import load_bundled_program, verify_bundled_program\n"
        f"print([r.verdict for r in verify_bundled_program(load_bundled_program({str(tmp_path / 'm.bpte')!r}))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['ok']\n", "")
