"""`delegraph diff`: what differs, by name, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from delegraph.cli import main
from delegraph.devtools import Kind, ProgramDiff, diff_programs
from delegraph.errors import InvalidProgram
from delegraph.interfaces import DelegateDescription, DelegateNode, DelegateWeight
from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program import DebugData, SourceNode, write_program
from delegraph.program.debug_data import DEBUG_DATA_KEY, SourceWeight, write_debug_data
from delegraph.program.schema import NamedData, Program
from delegraph.program.weights_origin import PROGRAM_KEY, WeightMark, WeightsOrigin

from .conftest import Negator, program

NUMBERS = np.arange(4, dtype=np.float32)


class Telling(Negator):
    """Its blob is JSON: of each weight its name, dtype, shape and content in hexadecimal digits."""

    def describe(self, processed: Any, compile_specs: Any, named_data: Any) -> DelegateDescription:
        said = json.loads(bytes(processed))
        weights = tuple(
            DelegateWeight(name, dtype, tuple(shape), len(content) // 2, data=bytes.fromhex(content))
            for name, dtype, shape, content in said["weights"]
        )
        nodes = [
            DelegateNode(f"n{i}", op, tuple(w.name for w in weights), debug_id=i) for i, op in enumerate(said["ops"])
        ]
        return DelegateDescription(tuple(nodes), weights, device=said.get("device", ""))


def weight(name: str, content: Any, dtype: str = "") -> list[Any]:
    array = np.asarray(content)
    return [name, dtype or str(array.dtype), list(array.shape), array.tobytes().hex()]


def made(*weights: list[Any], ops: tuple[str, ...] = ("Negate",), device: str = "", **changes: Any) -> Program:
    """The program with a delegate of these weights and operators."""
    blob = json.dumps({"weights": weights, "ops": ops, "device": device}).encode()
    names = ("fc.weight", "fc.weight_int8", "fc.weight_int8_scales", "fc.bias")
    known = {name: SourceWeight("float32", (4,)) for name in names}
    source = SourceNode(("aten::neg",), "fc", changes.pop("line", "net.py:1, in forward"), names)
    data = DebugData({1: source}, {1: (1,)}, (dict.fromkeys(range(len(ops)), (1,)),), {}, known)
    named = {**program().named_data, DEBUG_DATA_KEY: NamedData(write_debug_data({"forward": data}))}
    changed: Program = replace(program(), delegate_data=(blob,), named_data=MappingProxyType(named), **changes)
    return changed


@pytest.fixture(autouse=True)
def telling() -> Any:
    registry = PluginRegistry()
    registry.register("backends", "Negator", Telling())
    with use_registry(registry):
        yield


def weights_of(difference: ProgramDiff) -> list[tuple[str, str, str, str]]:
    return [(c.what, c.before, c.after, c.how) for c in difference.of(Kind.WEIGHT)]


BEFORE = made(weight("p_fc_weight", NUMBERS))


def test_equal_programs_differ_in_nothing() -> None:
    difference = diff_programs(BEFORE, made(weight("p_fc_weight", NUMBERS), line="net.py:999, in forward"))
    assert not difference, "a line that has moved makes no other program"
    assert (str(difference), difference.to_json()) == ("the programs are equal", {"equal": True, "changes": []})
    assert "the programs are equal" in difference._repr_html_()


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            [weight("p_fc_weight", NUMBERS * np.float32([1, 1, 1, 2]))],
            ("float32 4", "1 of 4 differ, 1.9 dB", "changed"),
        ),
        ([weight("b_fc_weight_int8", NUMBERS.astype(np.int8))], ("float32 4", "int8 4", "requantized")),
        ([weight("p_fc_weight", NUMBERS.reshape(2, 2))], ("float32 4", "float32 2x2", "another shape")),
        ([], ("float32 4", "", "gone")),
        ([weight("packed", np.zeros(9, np.int8), "blob")], ("float32 4", "blob, 9 bytes", "in another form")),
        ([weight("constant_1", NUMBERS + 1)], ("float32 4", "", "in another form")),
    ],
)
def test_weights_are_told_by_name(after: list[Any], told: tuple[str, str, str]) -> None:
    difference = diff_programs(BEFORE, made(*after))
    assert ("fc.weight", *told) in weights_of(difference)
    assert difference.of(Kind.CONTENT)[0].what == "delegate 0 of forward"


def test_a_weight_that_may_be_one_of_several_is_known_by_its_content() -> None:
    assert weights_of(diff_programs(BEFORE, made(weight("constant_1", NUMBERS)))) == []
    (told,) = weights_of(diff_programs(made(), made(weight("p_fc_bias", NUMBERS))))
    assert told == ("fc.bias", "", "float32 4", "new")


def test_constants_of_the_engine_are_counted() -> None:
    scales = [weight(f"scale_{i}", np.float32(i)) for i in range(3)]
    (told,) = weights_of(diff_programs(made(*scales[:2]), made(*scales[1:], weight("s", np.float32(9)))))
    assert told == ("constants without a name", "3", "4", "2 are equal"), "the kernels' constant is among them"


def test_operators_delegates_and_memory() -> None:
    plans = tuple(replace(p, non_const_buffer_sizes=(0, 512)) if p.delegates else p for p in program().execution_plan)
    after = made(weight("p_fc_weight", NUMBERS), ops=("Negate", "Copy"), device="abacus", execution_plan=plans)
    difference = diff_programs(BEFORE, after)
    changes = {(c.kind, c.what): (c.before, c.after) for c in difference.changes}
    assert changes[Kind.OPERATOR, "Copy on Negator"] == ("", "1 x")
    assert changes[Kind.DELEGATE, "delegate 0 of forward: device"] == ("", "abacus")
    assert changes[Kind.DELEGATE, "delegate 0 of forward: nodes"] == ("1", "2")
    assert changes[Kind.MEMORY, "memory 1 of forward"] == ("256", "512")
    assert (Kind.SIZE, "delegates") in changes
    titles = [line for line in str(difference).splitlines() if not line.startswith(" ")]
    assert {"operators", "delegates", "planned memory, in bytes", "sizes, in bytes"} <= set(titles)
    assert "<caption>operators</caption>" in difference._repr_html_()


def test_methods_inputs_and_outputs() -> None:
    without = replace(BEFORE, execution_plan=tuple(p for p in BEFORE.execution_plan if p.name != "dynamic"))
    (told,) = diff_programs(BEFORE, without).of(Kind.METHOD)
    assert (told.what, told.before, told.after) == ("dynamic", "there", "")
    plans = tuple(replace(p, outputs=p.inputs[:1]) if p.delegates else p for p in BEFORE.execution_plan)
    shorter = tuple(replace(p, inputs=p.inputs[:1]) if p.delegates else p for p in BEFORE.execution_plan)
    assert diff_programs(BEFORE, replace(BEFORE, execution_plan=plans)).of(Kind.CONTENT)
    inputs = diff_programs(BEFORE, replace(BEFORE, execution_plan=shorter)).of(Kind.INPUT)
    assert {change.after for change in inputs} == {""}


def test_a_difference_that_nothing_tells_is_still_one() -> None:
    """A backend that does not describe its blobs, and bytes of a constant that nobody reads."""
    with use_registry(PluginRegistry()):
        other = replace(BEFORE, delegate_data=(bytes(BEFORE.delegate_data[0])[:-1] + b" ",))
        (change,) = diff_programs(BEFORE, other).changes
    assert (change.kind, change.what) == (Kind.CONTENT, "delegate 0 of forward")
    assert re.fullmatch("[0-9a-f]{12}", change.before) and change.before != change.after


def test_external_weights_are_compared_by_their_digests() -> None:
    def with_origin(digest: str) -> Program:
        origin = WeightsOrigin("0" * 32, {"fc.weight": WeightMark("FLOAT[4]", digest)})
        named = {**BEFORE.named_data, PROGRAM_KEY: NamedData(origin.to_bytes())}
        return replace(BEFORE, named_data=MappingProxyType(named))

    assert not diff_programs(with_origin("ab" * 16), with_origin("ab" * 16))
    (told,) = weights_of(diff_programs(with_origin("ab" * 16), with_origin("cd" * 16)))
    assert told == ("fc.weight", "FLOAT[4], abababab", "FLOAT[4], cdcdcdcd", "beside the program")


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[str]]:
    def write(*programs: Program) -> list[str]:
        paths = [tmp_path / f"{number}.pte" for number in range(len(programs))]
        for path, written in zip(paths, programs, strict=True):
            write_program(written, path)
        return list(map(str, paths))

    return write


def test_exit_codes(files: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    before, after = files(BEFORE, made(weight("p_fc_weight", NUMBERS + 1)))
    assert main(["diff", before, before]) == 0
    assert capsys.readouterr().out == "the programs are equal\n"
    assert main(["diff", before, after]) == 1
    assert "fc.weight" in capsys.readouterr().out
    assert main(["diff", before, after, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["equal"] and {change["kind"] for change in told["changes"]} == {"weight", "content"}


def test_what_cannot_be_read_is_neither(
    files: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (before,) = files(BEFORE)
    damaged = tmp_path / "damaged.pte"
    damaged.write_bytes(b"PK\x03\x04" * 20)
    assert main(["diff", before, str(tmp_path / "nowhere.pte")]) == 2
    assert "delegraph diff: " in (said := capsys.readouterr().err) and "nowhere.pte" in said
    assert main(["diff", str(damaged), before]) == 2
    assert f"{damaged}: " in capsys.readouterr().err
    with pytest.raises(InvalidProgram, match=r"damaged\.pte"):
        main(["diff", str(damaged), before, "--traceback"])
