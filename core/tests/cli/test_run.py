"""`delegraph run`: inputs, outputs, times, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.cli.timing import Timing
from delegraph.devtools.profiling.percentiles import percentile
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import ExternalData, FlatTensor, write_flat_tensor, write_program
from delegraph.program.flat_tensor import TensorLayout
from delegraph.program.schema import (
    Bool,
    Double,
    ExtraTensorInfo,
    Int,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
)
from delegraph.runtime import Method

from .conftest import Negator, plan

Told = Callable[..., Any]
Refused = Callable[..., str]


def firsts(answer: Any, role: str = "outputs") -> list[Any]:
    return [value["first"] for value in answer[role]]


def test_zeros(pte: str, told: Told) -> None:
    answer = told("run", pte, "--inputs", "zeros", "--repeat", "3", "--json")
    assert firsts(answer, "inputs") == [[0, 0, 0, 0], [None], [2]]
    assert answer["outputs"][0] == {"dtype": "float32", "shape": [4], "first": [-1, -2, -3, -4]}
    assert answer["latency_seconds"]["repeat"] == 3
    assert 0 < answer["latency_seconds"]["min"] <= answer["latency_seconds"]["median"]
    assert answer["load_seconds"] > 0 and answer["first_seconds"] > 0
    assert answer["peak_memory_nbytes"] is None or answer["peak_memory_nbytes"] > 1 << 20
    assert answer["profile"] is None


def test_what_is_told_in_a_file_as_well(pte: str, told: Told, tmp_path: Path) -> None:
    words = ("run", pte, "--inputs", "zeros", "--json-file", str(tmp_path / "t.json"))
    assert "loaded in " in told(*words)
    answer = json.loads((tmp_path / "t.json").read_text())
    assert firsts(answer, "outputs") == firsts(told(*words, "--json"), "outputs")


def test_in_words(pte: str, told: Told) -> None:
    lines = told("run", pte, "--inputs", "zeros", "--repeat", "2").splitlines()
    assert lines[:4] == [
        "input 0: float32[4]  0, 0, 0, 0",
        "input 1: None",
        "input 2: 2",
        "output 0: float32[4]  -1, -2, -3, -4",
    ]
    told_of = [line for line in lines if line.startswith("loaded in ")]
    assert len(told_of) == 1 and told_of[0].endswith(" in the median of 2") and ", p99 " in told_of[0]
    assert "; first execution " in told_of[0]


def test_random_inputs_come_from_the_seed(pte: str, told: Told) -> None:
    first, again, third = (told("run", pte, "--seed", seed, "--json") for seed in ("5", "5", "6"))
    assert firsts(first) == firsts(again) != firsts(third)
    assert np.allclose(-np.array(firsts(first)[0]) - firsts(first, "inputs")[0], [1, 2, 3, 4])


def test_random_integers_are_fit_for_indices_and_masks(pte: str, told: Told, tmp_path: Path) -> None:
    told("run", pte, "--method", "identities", "--output", str(tmp_path / "out.npz"), "--json")
    saved = np.load(tmp_path / "out.npz")
    assert list(saved) == [f"output_{index}" for index in range(1, 6)], "output 0 is None"
    long, byte, boolean, bfloat16, float8 = saved.values()
    assert long.dtype == np.int64 and set(long) == {0, 1}
    assert byte.dtype == np.uint8 and byte.max() > 1
    assert boolean.dtype == np.bool_ and set(boolean) == {False, True}
    assert bfloat16.dtype == float8.dtype == np.float32
    assert np.abs(bfloat16).max() > 0.5 and np.abs(float8).max() > 0.5


def test_what_it_wrote_it_reads(pte: str, told: Told, tmp_path: Path) -> None:
    """bfloat16 and float8, which NumPy's files do not know, are float32 there."""
    first, again = str(tmp_path / "1.npz"), str(tmp_path / "2.npz")
    told("run", pte, "--method", "identities", "--output", first, "--json")
    told("run", pte, "--method", "identities", "--inputs", first, "--output", again, "--json")
    for a, b in zip(np.load(first).values(), np.load(again).values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_options_of_backends_by_load(pte: str, told: Told, refused: Refused) -> None:
    words = ("run", pte, "--inputs", "zeros", "--json", "--backend-options")
    assert firsts(told(*words, "Negator{factor=3}"))[0] == [-3, -6, -9, -12]
    assert firsts(told(*words, ""))[0] == [-1, -2, -3, -4]
    assert told(*words, "Negator{factor=3}", "--trace")["profile"]
    assert "the program has no backend 'Npu'; its backends are Negator" in refused(*words, "Npu{a=1}", code=1)
    assert "a backend is named twice" in refused(*words, "Negator{factor=3},Negator{factor=4}", code=2)
    assert "character 9 is the end; expected an option's name" in refused(*words, "Negator{", code=1)


def test_dynamic_inputs_have_the_largest_size_unless_told(pte: str, told: Told) -> None:
    def shapes(*words: str) -> list[list[int]]:
        answer = told("run", pte, "--method", "dynamic", *words, "--json")
        return [value["shape"] for value in (*answer["inputs"], *answer["outputs"])]

    assert shapes() == [[4, 8]] * 3
    assert shapes("--shape", "2,5") == [[2, 5]] * 3
    assert shapes("--shape", "0=1,3", "--shape", "1=1,3") == [[1, 3]] * 3


def test_inputs_from_files(pte: str, told: Told, tmp_path: Path) -> None:
    x, y = np.full((2, 3), 1.5, np.float32), np.full((2, 3), 2, np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    for source in (f"{tmp_path / 'x.npy'},{tmp_path / 'y.npy'}", str(tmp_path / "both.npz")):
        out = tmp_path / "out.npz"
        told("run", pte, "--method", "dynamic", "--inputs", source, "--output", str(out), "--json")
        assert (np.load(out)["output_0"] == 3.5).all()


def test_scalars_that_come_out(told: Told, tmp_path: Path) -> None:
    values = (Double(float("nan")), Bool(True), String("done"), Int(-3), Double(0.5))
    write_program(Program((plan("only", values, (), range(5), ()),)), tmp_path / "m.pte")
    answer = told("run", str(tmp_path / "m.pte"), "--output", str(tmp_path / "out.npz"), "--json")
    assert [first for (first,) in firsts(answer)] == ["nan", True, "done", -3, 0.5]
    assert [array.item() for array in np.load(tmp_path / "out.npz").values()][1:] == [True, "done", -3, 0.5]


def test_values_that_json_does_not_know_and_many_values(pte: str, told: Told, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[np.nan, np.inf, -np.inf] + [0.123456789] * 5], np.float32))
    both = f"{tmp_path / 'x.npy'},{tmp_path / 'x.npy'}"
    answer = told("run", pte, "--method", "dynamic", "--inputs", both, "--json")
    assert firsts(answer)[0][:3] == ["nan", "inf", "-inf"]
    out = told("run", pte, "--method", "identities")
    assert "output 1: int64[16]  " in out and ", …\n" in out


def test_trace_tells_where_the_time_goes(pte: str, told: Told) -> None:
    profile = told("run", pte, "--trace", "--repeat", "3", "--json")["profile"]
    assert (profile["method"], profile["runs"], profile["warmup"]) == ("forward", 3, 1)
    assert {(row["name"], row["delegate"]) for row in profile["nodes"]} == {
        ("aten::add.out", None), ("delegate 0 Negator", 0),
    }  # fmt: skip
    assert sum(row["share"] for row in profile["nodes"]) == pytest.approx(1)
    assert "in the median of 3 traced runs" in told("run", pte, "--trace", "--repeat", "3")


def test_kernels_by_name(pte: str, told: Told, refused: Refused) -> None:
    assert firsts(told("run", pte, "--kernels", "numpy", "--inputs", "zeros", "--json"))[0] == [-1, -2, -3, -4]
    assert "no installed distribution offers 'nmupy'" in refused("run", pte, "--kernels", "nmupy", code=1)


def test_external_constants(told: Told, refused: Refused, tmp_path: Path) -> None:
    info = ExtraTensorInfo(fully_qualified_name="w", location=TensorDataLocation.EXTERNAL)
    value = Tensor(ScalarType.FLOAT, (2,), (0,), extra_tensor_info=info)
    write_program(Program((plan("only", (value,), (), (0,), ()),)), tmp_path / "m.pte")
    layout = TensorLayout(ScalarType.FLOAT, (2,), (0,))
    data = ExternalData(np.array([7, 8], np.float32).tobytes(), layout)
    write_flat_tensor(FlatTensor({"w": data}), tmp_path / "m.ptd")
    answer = told("run", str(tmp_path / "m.pte"), "--data", str(tmp_path / "m.ptd"), "--json")
    assert firsts(answer) == [[7, 8]]
    assert "'w'" in refused("run", str(tmp_path / "m.pte"), code=1)


def test_a_missing_backend_and_what_would_help(pte: str, refused: Refused) -> None:
    with use_registry(PluginRegistry()):
        message = refused("run", pte, code=1)
    assert message.startswith(f"delegraph run: {pte}: method 'forward' cannot be loaded:")
    assert "the file says that its blob was made by 'acme' '1.2', which is not installed" in message
    assert "pip" not in message


def test_a_method_that_is_not_there(pte: str, refused: Refused) -> None:
    message = refused("run", pte, "--method", "backward", code=1)
    assert message.endswith("no method 'backward'; the program has dynamic, forward, identities\n")


def test_an_output_that_cannot_be_written(pte: str, refused: Refused, tmp_path: Path) -> None:
    message = refused("run", pte, "--output", str(tmp_path / "no" / "out.npz"), code=1)
    assert "No such file or directory" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--repeat", "0"), "argument --repeat: 0 is not a positive number"),
        (("--repeat", "many"), "argument --repeat: many is not a positive number"),
        (("--seed", "-1"), "argument --seed: -1 is not a number from 0 on"),
        (("--timeout", "nan"), "argument --timeout: nan is not a number of seconds above 0"),
        (("--shape", "1"), "--shape 1: the method has no dynamic input"),
        (("--method", "dynamic", "--shape", "5,8"), "--shape 5,8: input 0 takes sizes up to [4, 8]"),
        (("--method", "dynamic", "--shape", "1"), "--shape 1: input 0 takes sizes up to [4, 8]"),
        (("--method", "dynamic", "--shape", "7=1,1"), "--shape 7=1,1: input 7 is not dynamic; dynamic are [0, 1]"),
        (("--method", "dynamic", "--shape", "2x3"), "--shape 2x3: write sizes as 1,16, or for one input as 0=1,16"),
        (("--method", "dynamic", "--inputs", "x.npy", "--shape", "1,1"), "--shape goes with made inputs"),
        (("--inputs", "no.npy"), "--inputs: no.npy: No such file or directory"),
    ],
)
def test_wrong_usage(pte: str, refused: Refused, words: tuple[str, ...], message: str) -> None:
    assert message in refused("run", pte, *words, code=2)


def test_input_files_that_do_not_fit(pte: str, refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.zeros(4, np.float32))
    assert "the method takes 2 tensors, the files have 1" in refused(
        "run", pte, "--method", "dynamic", "--inputs", str(file), code=2
    )
    np.save(file, np.zeros(4, np.float64))
    assert "pass array.astype('float32')" in refused("run", pte, "--inputs", str(file), code=1)
    np.save(file, np.array([{}]), allow_pickle=True)
    assert "is neither .npy nor .npz: Object arrays" in refused("run", pte, "--inputs", str(file), code=2)
    for content in (b"", b"PK\3\4, and no more of a zip"):
        file.write_bytes(content)
        assert "is neither .npy nor .npz" in refused("run", pte, "--inputs", str(file), code=2)


def test_a_damaged_archive_of_inputs(pte: str, refused: Refused, tmp_path: Path) -> None:
    """zlib and zipfile have errors of their own kinds, for a member that they cannot expand."""
    file, place = tmp_path / "x.npz", b"x.npy"
    np.savez_compressed(file, x=np.linspace(0, 1, 64, dtype=np.float32))
    whole = bytearray(file.read_bytes())
    content, entry = whole.index(place) + len(place), whole.rindex(b"PK\1\2")
    extra = int.from_bytes(whole[28:30], "little")
    for at, byte in ((content + extra, 0xFF), (entry + 10, 99), (entry + 8, 1)):  # the data, its method, a password
        damaged = bytearray(whole)
        damaged[at] = byte
        file.write_bytes(damaged)
        assert "is neither .npy nor .npz" in refused("run", pte, "--inputs", str(file), code=2)


def test_warm_up_is_not_timed(pte: str, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, execute = [], Method.execute

    def counted(self: Method, *args: Any, **options: Any) -> list[Any]:
        runs.append(options)
        return execute(self, *args, **options)

    monkeypatch.setattr(Method, "execute", counted)
    answer = told("run", pte, "--warmup", "4", "--repeat", "3", "--json")
    assert (answer["latency_seconds"]["repeat"], len(runs)) == (3, 1 + 4 + 3)


def test_percentiles_are_times_that_were_measured() -> None:
    assert [percentile(range(100, 0, -1), percent) for percent in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert Timing(9.0, (3.0,), None).to_json() == {
        "min": 3, "median": 3, "mean": 3, "p50": 3, "p90": 3, "p99": 3, "max": 3, "repeat": 1
    }  # fmt: skip


def test_outputs_into_a_folder(pte: str, told: Told, tmp_path: Path) -> None:
    told("run", pte, "--inputs", "zeros", "--output-dir", str(tmp_path / "new" / "out"), "--repeat", "1")
    assert np.load(tmp_path / "new" / "out" / "output_0.npy").tolist() == [-1, -2, -3, -4]


def test_of_several_data_files_the_later_one_counts(told: Told, tmp_path: Path) -> None:
    info = ExtraTensorInfo(fully_qualified_name="w", location=TensorDataLocation.EXTERNAL)
    value = Tensor(ScalarType.FLOAT, (2,), (0,), extra_tensor_info=info)
    write_program(Program((plan("only", (value,), (), (0,), ()),)), tmp_path / "m.pte")
    for name, numbers in {"a": [1, 2], "b": [3, 4]}.items():
        entry = ExternalData(np.array(numbers, np.float32).tobytes(), TensorLayout(ScalarType.FLOAT, (2,), (0,)))
        write_flat_tensor(FlatTensor({"w": entry}), tmp_path / f"{name}.ptd")
    paths = [str(tmp_path / name) for name in ("m.pte", "a.ptd", "b.ptd")]
    assert firsts(told("run", paths[0], "--data", paths[1], "--data", paths[2], "--json")) == [[3, 4]]
    assert firsts(told("run", paths[0], "--data", paths[2], "--data", paths[1], "--json")) == [[1, 2]]


@pytest.mark.parametrize(
    ("words", "message"), [(("--warmup", "-1"), "-1 is not a number from 0 on"), (("--repeat", "0"), "positive")]
)
def test_counts_that_are_none(pte: str, refused: Refused, words: tuple[str, ...], message: str) -> None:
    assert message in refused("run", pte, *words, code=2)


def test_checking(pte: str, told: Told, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    assert firsts(told("run", pte, "--check", "--inputs", "zeros", "--json"))[0] == [-1, -2, -3, -4]
    monkeypatch.setattr(Negator, "execute", lambda self, context, handle, args: None)
    assert "delegate 0 Negator(float32[4], float32[4]): it did not write" in refused("run", pte, "--check", code=1)
