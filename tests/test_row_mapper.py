"""`delegraph.RowMapper`: which columns go where, how many rows a call has, and what is wrong with a row."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.export import Dim

import delegraph
from delegraph import RowMapper
from delegraph.errors import InvalidArgument, InvalidType, NotSupported


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scaled": x * scale[:, None], "total": x.sum(1)}


def lowered(model: torch.nn.Module, *args: torch.Tensor, **options: Any) -> bytes:
    return bytes(delegraph.lower(model, args, **options))


@pytest.fixture(scope="module")
def doubled() -> bytes:
    return lowered(Doubled(), torch.zeros(2, 3), dynamic_shapes={"x": {0: Dim("batch", max=8)}})


@pytest.fixture(scope="module")
def lengths() -> bytes:
    """Of a batch of texts of one length, up to 16."""
    sizes = {"x": {0: Dim("batch", max=8), 1: Dim("length", max=16)}}
    return lowered(Doubled(), torch.zeros(2, 3), dynamic_shapes=sizes)


@pytest.fixture(scope="module")
def fixed() -> bytes:
    return lowered(Doubled(), torch.zeros(4, 3))


ROWS = np.arange(33, dtype=np.float32).reshape(11, 3)


@pytest.mark.parametrize("batch_size", [None, 1, 3, 8])
def test_rows_in_the_order_in_which_they_came(doubled: bytes, batch_size: int | None) -> None:
    results = RowMapper(doubled, batch_size=batch_size)({"x": ROWS})
    assert list(results) == ["output"]
    np.testing.assert_array_equal(results["output"], ROWS * 2)


def test_a_call_that_is_not_full_is_filled_and_cut(fixed: bytes) -> None:
    sizes: list[int] = []

    def seen(outputs: Any) -> Any:
        sizes.append(len(outputs["output"]))
        return outputs

    np.testing.assert_array_equal(RowMapper(fixed, finish=seen)({"x": ROWS})["output"], ROWS * 2)
    assert sizes == [4, 4, 3]


def test_rows_of_one_length_are_called_together(lengths: bytes) -> None:
    rows = [np.full(n, n, np.float32) for n in (3, 5, 3, 4, 5, 3)]
    calls: list[tuple[int, ...]] = []

    def seen(outputs: Any) -> Any:
        calls.append(outputs["output"].shape)
        return outputs

    results = RowMapper(lengths, finish=seen)({"x": rows})["output"]
    assert [row.tolist() for row in results] == [(row * 2).tolist() for row in rows]
    assert sorted(calls) == [(1, 4), (2, 5), (3, 3)]


def test_a_row_may_be_a_calls_whole_input(fixed: bytes) -> None:
    rows = np.ones((5, 4, 3), np.float32)
    assert RowMapper(fixed)({"x": rows})["output"].shape == (5, 4, 3)


def test_flat_rows_are_given_the_inputs_dims() -> None:
    program = lowered(Doubled(), torch.zeros(1, 2, 3))
    np.testing.assert_array_equal(
        RowMapper(program)({"x": np.ones((5, 6), np.float32)})["output"], np.full((5, 2, 3), 2, np.float32)
    )


def test_columns_by_name() -> None:
    program = lowered(Scaled(), torch.zeros(2, 3), torch.zeros(2))
    mapper = RowMapper(program, inputs={"x": "pixels", "forward.scale": "gain"}, outputs={"total": "sum"})
    results = mapper({"gain": np.full(11, 10), "pixels": ROWS, "id": np.arange(11)})  # int64 is taken for float32
    assert list(results) == ["scaled", "sum"]
    np.testing.assert_array_equal(results["scaled"], ROWS * 10)
    np.testing.assert_array_equal(results["sum"], ROWS.sum(1))


def test_the_only_column_may_have_any_name(doubled: bytes) -> None:
    assert RowMapper(doubled)({"anything": ROWS})["output"].shape == (11, 3)


def test_several_methods() -> None:
    models = {"double": Doubled(), "same": torch.nn.Identity()}
    program = bytes(delegraph.lower(models, {name: (torch.zeros(2, 3),) for name in models}))
    mapper = RowMapper(program, ("double", "same"), {"same.input": "x"}, {"same.output": "copy"})
    results = mapper({"x": ROWS, "id": np.arange(11)})
    assert list(results) == ["double_output", "copy"]
    np.testing.assert_array_equal(results["double_output"], results["copy"] * 2)


def test_functions_before_and_after(doubled: bytes) -> None:
    mapper = RowMapper(
        doubled,
        prepare=lambda rows: np.stack([np.frombuffer(text.encode(), np.uint8) for text in rows["text"]]).astype("f4"),
        finish=lambda outputs: {"label": ["low" if row[0] < 200 else "high" for row in outputs["output"]]},
    )
    texts = np.array(["abc", "xyz"] * 6, object)
    assert mapper({"text": texts, "id": np.arange(12)})["label"].tolist() == ["low", "high"] * 6


def test_what_is_wrong_with_a_row_is_told_with_its_number(lengths: bytes) -> None:
    rows = [np.zeros(n, np.float32) for n in (3, 17, 3)]
    with pytest.raises(InvalidArgument, match=r"row 1: .*dim 1 \(length\) is 17"):
        RowMapper(lengths)({"x": rows})


def test_what_is_wrong_is_recorded_and_the_other_rows_are_computed(lengths: bytes) -> None:
    rows = [np.zeros(3, np.float32), np.zeros(17, np.float32), None, np.array(["a"]), np.ones(3, np.float32)]
    results = RowMapper(lengths, on_error="record")({"x": rows})
    assert [bool(text) for text in results["error"]] == [False, True, True, True, False]
    assert results["error"][2] == "InvalidArgument: input 'x': the row has null"
    assert results["error"][3] == "InvalidType: input 'x' takes float32, and the row has text"
    assert results["output"][4].tolist() == [2, 2, 2] and np.isnan(results["output"][1]).all()


def test_a_function_that_raises_is_one_rows_fault(doubled: bytes) -> None:
    def prepare(rows: Any) -> Any:
        return np.array([[1 / number] * 3 for number in rows["number"].tolist()], np.float32)

    mapper = RowMapper(doubled, prepare=prepare, on_error="record")
    results = mapper({"number": np.array([1.0, 0.0, 2.0])})
    assert results["error"].tolist() == ["", "prepare raised ZeroDivisionError: float division by zero", ""]
    assert results["output"][[0, 2], 0].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda outputs: outputs["output"][:1], "finish gave 1 values in column 'output' for"),
        (lambda outputs: {"n": 3}, "finish gave a int in column 'n' for"),
    ],
)
def test_functions_that_give_what_fits_no_rows(doubled: bytes, given: Any, message: str) -> None:
    mapper = RowMapper(doubled, finish=given, on_error="record")
    results = mapper({"x": ROWS[:2]})
    if "values" in message:  # of one row, one value is right
        assert results["error"].tolist() == ["", ""]
    else:
        assert message in results["error"][0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error='ignore'; it is 'stop' or 'record'"),
        ({"batch_size": 0}, "batch_size=0; it is at least 1"),
        ({"batch_size": 9}, r"batch_size=9: a call of method 'forward' has \d..8 rows"),
        ({"inputs": {"y": "x"}}, "there is no input 'y'; inputs are forward.x, x"),
        ({"outputs": {"y": "x"}}, "there is no output 'y'; outputs are forward.output, output"),
    ],
)
def test_options_that_do_not_fit(doubled: bytes, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        RowMapper(doubled, **options).loaded()


def test_columns_that_do_not_fit(doubled: bytes) -> None:
    mapper = RowMapper(doubled)
    with pytest.raises(InvalidArgument, match="there is no column 'x'; columns are a, b"):
        mapper({"a": ROWS, "b": ROWS})
    with pytest.raises(InvalidArgument, match=r"row 0: input 'x': the row has shape \[1, 1, 1\], and rows of"):
        mapper({"x": np.zeros((2, 1, 1, 1), np.float32)})
    with pytest.raises(InvalidType, match="input 'x' takes uint8, which cannot hold a number of the row"):
        RowMapper(lowered(Doubled(), torch.zeros(2, 3, dtype=torch.uint8)))({"x": np.full((2, 3), 300)})


def test_rows_of_which_some_are_stacked_and_some_are_not() -> None:
    mapper = RowMapper(lowered(Scaled(), torch.zeros(2, 3), torch.zeros(2)))
    with pytest.raises(InvalidArgument, match="row 0: method 'forward': rows of some inputs are stacked, and those of"):
        mapper({"x": np.zeros((4, 2, 3), np.float32), "scale": np.zeros(4, np.float32)})


def test_methods_that_no_row_fits() -> None:
    class Constant(torch.nn.Module):
        def forward(self, n: int) -> torch.Tensor:
            return torch.ones(2)

    with pytest.raises(InvalidArgument, match="method 'forward' takes no tensor, so that its results are the same"):
        RowMapper(bytes(delegraph.lower(Constant(), (3,)))).loaded()

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    with pytest.raises(InvalidArgument, match="method 'forward' keeps state: a row's result would depend on"):
        RowMapper(lowered(Counter(), torch.zeros(2, 3))).loaded()

    class Summed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    with pytest.raises(NotSupported, match=r"of 2 rows, output 'output' has the shape \[\]: it has no row for each"):
        RowMapper(lowered(Summed(), torch.zeros(2, 3)))({"x": ROWS})


def test_a_data_frame_gets_columns_more(doubled: bytes) -> None:
    frame = pd.DataFrame({"x": [*ROWS], "id": range(11)}, index=range(100, 111))
    results = RowMapper(doubled, inputs={"x": "x"})(frame)
    assert list(results) == ["x", "id", "output"] and list(results.index) == list(frame.index)
    assert results["output"].iloc[3].tolist() == (ROWS[3] * 2).tolist()


def test_sent_to_another_process_it_is_its_path(doubled: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(doubled + bytes(0))
    for model in (str(path), delegraph.load(path)):
        mapper = RowMapper(model).loaded()
        sent = pickle.dumps(mapper)
        assert len(sent) < 2000
        np.testing.assert_array_equal(pickle.loads(sent)({"x": ROWS})["output"], ROWS * 2)


def test_items_that_are_mapped_may_be_batched(doubled: bytes) -> None:
    batches = delegraph.Concurrency(max_batch=8, max_waiting=20)
    with delegraph.load(doubled, concurrency=batches) as model:
        results = list(model.map(ROWS[row : row + 1] for row in range(11)))
    np.testing.assert_array_equal(np.concatenate(results), ROWS * 2)
