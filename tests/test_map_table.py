"""`delegraph.map_table` and `delegraph map`: what goes in and comes out, runs that are ended, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch
from torch.export import Dim

import delegraph
from delegraph.cli import main
from delegraph.errors import AccessFailed, Internal, InvalidArgument, InvalidState, InvalidType, NotInstalled
from delegraph.mapping.arrow import ArrowColumns, arrow_column

PATIENCE = 60


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(scope="module")
def pte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.pte"
    delegraph.lower(Doubled(), (torch.zeros(2, 3),), dynamic_shapes={"x": {0: Dim("batch", max=8)}}).save(path)
    return path


ROWS = 100
X = np.arange(3 * ROWS, dtype=np.float32).reshape(ROWS, 3)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"id": range(ROWS), "x": [*X]}), tmp_path / "in.parquet", row_group_size=30)
    return tmp_path / "in.parquet"


def outputs(table: pa.Table, column: str = "output") -> Any:
    return np.stack(table.column(column).to_pylist())


# ---- what goes in and comes out --------------------------------------------------------------------


def test_the_rows_with_the_results_behind_them(pte: Path, source: Path, tmp_path: Path) -> None:
    told: list[delegraph.MapProgress] = []
    mapped = delegraph.map_table(pte, source, tmp_path / "out.parquet", part_rows=32, progress=told.append)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "x", "output"]
    assert table.column("id").to_pylist() == list(range(ROWS))
    np.testing.assert_array_equal(outputs(table), X * 2)
    assert table.schema.field("output").type == pa.list_(pa.float32())
    assert (mapped.rows, mapped.failed, mapped.resumed) == (ROWS, 0, 0)
    assert [(progress.rows, progress.total) for progress in told] == [(32, 100), (64, 100), (96, 100), (100, 100)]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".jsonl"])
def test_other_files_of_tables(pte: Path, source: Path, tmp_path: Path, suffix: str) -> None:
    between, end = tmp_path / f"between{suffix}", tmp_path / "end.parquet"
    delegraph.map_table(pte, source, between, outputs={"output": "twice"})
    delegraph.map_table(pte, between, end, inputs={"x": "twice"}, keep=["id"], part_rows=7)
    table = pq.read_table(end)
    assert table.column_names == ["id", "output"]
    np.testing.assert_array_equal(outputs(table), X * 4)


def test_csv_has_a_number_or_a_text_in_a_row(pte: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("name,a,b,c\n" + "".join(f"n{n},{n},1,2\n" for n in range(20)))
    options: dict[str, Any] = {"prepare": _stacked, "part_rows": 8}
    with pytest.raises(InvalidArgument, match="CSV has no lists, and column 'output' is list<item: float>; write"):
        delegraph.map_table(pte, tmp_path / "in.csv", tmp_path / "out.csv", **options)
    delegraph.map_table(pte, tmp_path / "in.csv", tmp_path / "out.csv", finish=_total, restart=True, **options)
    table = pa.csv.read_csv(tmp_path / "out.csv")
    assert table.column_names == ["name", "a", "b", "c", "total"]
    assert table.column("total").to_pylist() == [2 * (n + 3) for n in range(20)]


def test_csv_of_lists_is_refused_before_anything_is_computed(pte: Path, source: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"column 'x' is list.*; write .parquet, leave a column of the input out"):
        delegraph.map_table(pte, source, tmp_path / "out.csv", prepare=_never)


def _never(rows: Any) -> Any:
    raise AssertionError("this is not called")


def _stacked(rows: Any) -> Any:
    return np.stack([rows[name] for name in "abc"], 1).astype(np.float32)


def _total(results: Any) -> Any:
    return {"total": results["output"].sum(1)}


def test_documents_of_several_lines_and_of_megabytes(pte: Path, tmp_path: Path) -> None:
    texts = ["a\nb, c\n", "d" * 3_000_000, "e"]
    quoted = "".join(f'"{text}"\n' for text in texts)
    (tmp_path / "in.csv").write_text(f"text\n{quoted}")
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    for name in ("in.csv", "in.jsonl"):
        delegraph.map_table(pte, tmp_path / name, tmp_path / "out.parquet", prepare=_lengths, keep=[])
        expected = [[2.0 * len(text)] * 3 for text in texts]
        assert pq.read_table(tmp_path / "out.parquet")["output"].to_pylist() == expected


def _lengths(rows: Any) -> Any:
    return np.array([[len(text)] * 3 for text in rows["text"]], np.float32)


def test_a_folder_of_tables_is_one_table(pte: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(4):
        rows = slice(25 * part, 25 * part + 25)
        pq.write_table(pa.table({"x": [*X[rows]]}), tmp_path / "in" / f"{part}.parquet")
    delegraph.map_table(pte, tmp_path / "in", tmp_path / "out.parquet", part_rows=40)
    np.testing.assert_array_equal(outputs(pq.read_table(tmp_path / "out.parquet")), X * 2)


def test_what_else_is_in_a_folder_of_tables(pte: Path, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "_temporary").mkdir(parents=True)
    source.rename(folder / "0.parquet")
    for name in (".0.parquet.crc", "_SUCCESS", "_temporary/part.parquet"):
        (folder / name).write_text("no table")
    assert delegraph.map_table(pte, folder, tmp_path / "out.parquet").rows == ROWS
    (folder / "README.txt").write_text("of what the tables are")
    with pytest.raises(
        InvalidArgument, match=r"in has files of several kinds, README.txt and 0.parquet: name a folder"
    ):
        delegraph.map_table(pte, folder, tmp_path / "out.parquet")
    (folder / "README.txt").rename(folder / "more.csv")
    with pytest.raises(InvalidArgument, match=r"several kinds, .*; what is to be passed over gets a name"):
        delegraph.map_table(pte, folder, tmp_path / "out.parquet")


def test_a_folder_of_files_is_a_row_for_each(pte: Path, tmp_path: Path) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    for n in range(10):
        (tmp_path / "texts" / ("deep" if n % 2 else ".") / f"{n}.txt").write_text(f"{n} {n} {n}")
    delegraph.map_table(pte, tmp_path / "texts", tmp_path / "out.parquet", prepare=_read, finish=_total, part_rows=3)
    table = pq.read_table(tmp_path / "out.parquet")
    names = [Path(path).name for path in table.column("path").to_pylist()]
    assert table.column("total").to_pylist() == [6 * int(name[0]) for name in names]
    assert sorted(names) == [f"{n}.txt" for n in range(10)]
    with pytest.raises(InvalidArgument, match="columns are path; a folder of files needs a function"):
        delegraph.map_table(pte, tmp_path / "texts", tmp_path / "out.parquet", keep=["y"])


def _read(rows: Any) -> Any:
    return np.array([Path(path).read_text("utf-8").split() for path in rows["path"]], np.float32)


def test_errors_are_a_column(pte: Path, tmp_path: Path) -> None:
    rows = [[1, 2, 3], None, [1, 2], [4, 5, 6]]
    pq.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float64()))}), tmp_path / "in.parquet")
    with pytest.raises(InvalidArgument, match="row 1: input 'x': the row has null"):
        delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    mapped = delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet", on_error="record")
    assert (mapped.rows, mapped.failed) == (4, 2)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("output").to_pylist() == [[2, 4, 6], None, None, [8, 10, 12]]
    errors = table.column("error").to_pylist()
    assert errors[0] is errors[3] is None and errors[1] == "InvalidArgument: input 'x': the row has null"
    assert "dim 1 is 2" in errors[2]


def test_parts_in_which_every_row_fails_join_with_the_others(pte: Path, tmp_path: Path) -> None:
    rows = [None] * 4 + [[1, 2, 3]] * 4
    pq.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "in.parquet")
    delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet", on_error="record", part_rows=4)
    assert pq.read_table(tmp_path / "out.parquet").column("output").to_pylist() == [None] * 4 + [[2, 4, 6]] * 4


@pytest.mark.parametrize(
    "workers",
    [pytest.param(2, marks=pytest.mark.models, id="processes"), pytest.param(ThreadPoolExecutor(2), id="executor")],
)
def test_workers_give_the_same(pte: Path, source: Path, tmp_path: Path, workers: Any) -> None:
    delegraph.map_table(
        pte, source, tmp_path / "out.parquet", workers=workers, part_rows=16, prepare=_input, finish=_total
    )
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("id").to_pylist() == list(range(ROWS))
    assert table.column("total").to_pylist() == (X * 2).sum(1).tolist()


class _Measured(ThreadPoolExecutor):
    """Threads that take what processes would be sent, and note how much that is."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Any:
        sent = pickle.dumps(args[1:])  # without the program
        self.most = max(getattr(self, "most", 0), len(sent))
        return super().submit(function, args[0], *pickle.loads(sent), **options)


def test_a_worker_is_sent_the_rows_of_its_part_alone(pte: Path, tmp_path: Path) -> None:
    many = np.zeros((20_000, 3), np.float32)
    pq.write_table(pa.table({"x": [*many]}), tmp_path / "in.parquet")  # one row group, 240 kB
    with _Measured(2) as executor:
        delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet", workers=executor, part_rows=500)
    assert executor.most < 20_000


def _input(rows: Any) -> Any:
    return {"x": rows["x"]}


def test_no_rows(pte: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.list_(pa.float32()))}), tmp_path / "in.parquet")
    assert delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet").rows == 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert (table.num_rows, table.column_names) == (0, ["x", "output"])
    assert table.schema.field("output").type.value_type == pa.float32()


def test_no_rows_have_the_columns_that_finish_gives(pte: Path, source: Path, tmp_path: Path) -> None:
    empty, target = tmp_path / "empty.parquet", tmp_path / "out.parquet"
    pq.write_table(pq.read_table(source).slice(0, 0), empty)
    for place in (source, empty):
        delegraph.map_table(pte, place, target, finish=_total_and_name)
        assert pq.read_schema(target).names == ["id", "x", "total", "name"]
        assert pq.read_schema(target).field("total").type == pa.float32()
    assert pq.read_table(target).num_rows == 0
    message = "finish is called with none, for their columns, and finish raised .*; have it take arrays of no rows"
    with pytest.raises(InvalidArgument, match=message):
        delegraph.map_table(pte, empty, target, finish=_greatest)


def _total_and_name(results: Any) -> Any:
    totals = results["output"].sum(axis=1)
    return {"total": totals, "name": [f"of {total}" for total in totals]}


def _greatest(results: Any) -> Any:
    return {"share": results["output"][:, 0] / results["output"].max()}


@pytest.mark.parametrize(
    "values",
    [
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        np.arange(6, dtype=np.int64),
        np.array([[True], [False]]),
        np.array([np.ones((2, 3), np.float16), np.ones((1, 3), np.float16)], object),
        np.array(["a", None, "b"], object),
    ],
    ids=["cube", "numbers", "truths", "ragged", "texts"],
)
def test_arrays_are_columns_and_arrays_again(values: Any) -> None:
    column = arrow_column(values)
    again = ArrowColumns(pa.table({"a": column}))["a"]
    assert [np.asarray(row).tolist() for row in again] == [np.asarray(row).tolist() for row in values]
    assert again.dtype == values.dtype or values.dtype.kind in "OU"
    sliced = ArrowColumns(pa.table({"a": column}).slice(1))["a"]
    assert [np.asarray(row).tolist() for row in sliced] == [np.asarray(row).tolist() for row in values[1:]]


def test_tensors_of_arrow_are_read(pte: Path, tmp_path: Path) -> None:
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(X))
    pq.write_table(pa.table({"x": column}), tmp_path / "in.parquet")
    delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet", keep=[])
    np.testing.assert_array_equal(outputs(pq.read_table(tmp_path / "out.parquet")), X * 2)


# ---- runs that are ended ---------------------------------------------------------------------------

SLOW = """
import os, time
import numpy as np

def prepare(rows):
    with open("log", "a") as log:
        log.write("".join(f"{n}\\n" for n in rows["id"]))
    time.sleep(float(os.environ.get("SLOW", "0")))
    if os.environ.get("DIES") and not os.path.exists("died") and 50 in rows["id"]:
        open("died", "w").close()
        os.kill(os.getpid(), 9)
    if os.environ.get("DIES_ALWAYS"):
        os.kill(os.getpid(), 9)
    return rows["x"]
"""


def command(pte: Path, folder: Path, *words: str) -> list[str]:
    (folder / "slow.py").write_text(SLOW)
    command = [sys.executable, "-m", "delegraph", "map", str(pte), "in.parquet", "out.parquet", "--part-rows", "10"]
    return [*command, "--function", "slow.py:prepare", *words]


def ended(words: list[str], folder: Path, parts: int, how: signal.Signals) -> int:
    """Run the command and end it once so many parts are there."""
    running = subprocess.Popen(words, cwd=folder, env={**os.environ, "SLOW": "0.02"}, stderr=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE
    while len(list((folder / "out.parquet.parts").glob("rows-*"))) < parts:
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.002)
    running.send_signal(how)
    return running.wait(PATIENCE)


@pytest.mark.models
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_ended_goes_on_where_it_was(
    pte: Path, source: Path, tmp_path: Path, how: signal.Signals, workers: str
) -> None:
    words = command(pte, tmp_path, "--workers", workers)
    assert ended(words, tmp_path, 3, how) != 0
    assert not (tmp_path / "out.parquet").exists()
    time.sleep(0.3)  # workers whose parent was killed end with it
    parts = {file.name for file in (tmp_path / "out.parquet.parts").glob("rows-*")}
    done = {row for name in parts for row in range(int(name[5:17]), int(name[18:30]))}
    (tmp_path / "log").unlink()
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"{len(done)} were there from an earlier run" in ran.stdout
    again = set(map(int, (tmp_path / "log").read_text().split()))
    assert again == set(range(ROWS)) - done
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("id").to_pylist() == list(range(ROWS))
    np.testing.assert_array_equal(outputs(table), X * 2)
    assert not (tmp_path / "out.parquet.parts").exists()


@pytest.mark.models
def test_a_worker_that_is_killed_loses_nothing(pte: Path, source: Path, tmp_path: Path) -> None:
    words = command(pte, tmp_path, "--workers", "2")
    subprocess.run(words, cwd=tmp_path, env={**os.environ, "DIES": "1"}, capture_output=True, check=True)
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(outputs(pq.read_table(tmp_path / "out.parquet")), X * 2)


@pytest.mark.models
def test_rows_that_kill_every_worker_are_named(
    pte: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(pte, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIES_ALWAYS", "1")
    import slow  # type: ignore[import-not-found]

    with pytest.raises(Internal, match="rows 0 to 9, or those beside them: the process"):
        delegraph.map_table(pte, source, tmp_path / "out.parquet", prepare=slow.prepare, workers=2, part_rows=10)


def _stopped(pte: Path, source: Path, target: Path, **options: Any) -> None:
    """A run that ends after its second part."""

    def progress(progress: delegraph.MapProgress) -> None:
        if progress.rows >= 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delegraph.map_table(pte, source, target, part_rows=20, progress=progress, **options)
    assert len(list(target.with_name(f"{target.name}.parts").glob("rows-*"))) == 2


def test_parts_of_another_size_are_taken_as_they_are(pte: Path, source: Path, tmp_path: Path) -> None:
    _stopped(pte, source, tmp_path / "out.parquet")
    mapped = delegraph.map_table(pte, source, tmp_path / "out.parquet", part_rows=7)
    assert mapped.resumed == 40
    np.testing.assert_array_equal(outputs(pq.read_table(tmp_path / "out.parquet")), X * 2)


def other_program(pte: Path, source: Path) -> dict[str, Any]:
    model = Doubled()
    program = delegraph.lower(model, (torch.zeros(2, 3),), dynamic_shapes={"x": {0: Dim("batch", max=9)}})
    return {"model": bytes(program)}


def other_input(pte: Path, source: Path) -> dict[str, Any]:
    pq.write_table(pa.table({"id": range(ROWS), "x": [*(X + 1)]}), source, row_group_size=30)
    return {}


def other_function(pte: Path, source: Path) -> dict[str, Any]:
    return {"finish": _stacked}


def other_setting(pte: Path, source: Path) -> dict[str, Any]:
    return {"batch_size": 4}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (other_program, "program is not"),
        (other_input, "input is not"),
        (other_function, "finish is not"),
        (other_setting, "settings is not"),
    ],
)
def test_a_run_of_something_else_is_not_gone_on_with(
    pte: Path, source: Path, tmp_path: Path, change: Callable[..., dict[str, Any]], what: str
) -> None:
    target = tmp_path / "out.parquet"
    _stopped(pte, source, target, finish=_total)
    options = {"model": pte, "finish": _total, **change(pte, source)}
    with pytest.raises(InvalidState, match=f"out.parquet.parts has parts of another run: {what}"):
        delegraph.map_table(options.pop("model"), source, target, **options)
    options = {"model": pte, "finish": _total, **change(pte, source)}
    if change is not other_function:
        assert delegraph.map_table(options.pop("model"), source, target, restart=True, **options).resumed == 0


def written(text: str, place: str) -> Any:
    """The function `f` of a text that is in no file, as in a notebook."""
    names: dict[str, Any] = {}
    exec(compile(text, place, "exec"), names)
    return names["f"]


def test_functions_are_told_apart_by_what_is_in_them(pte: Path, source: Path, tmp_path: Path) -> None:
    target, text = tmp_path / "out.parquet", "def f(rows, to='x'):\n    return [row * 2 for row in rows[to]]"
    _stopped(pte, source, target, prepare=written(text, "<cell 1>"))
    for other in (
        written(text.replace("2", "3"), "<cell 1>"),
        partial(written(text, "<cell 1>"), to="x"),
        np.asarray,
        dict,
    ):
        with pytest.raises(InvalidState, match="parts of another run: prepare is not"):
            delegraph.map_table(pte, source, target, prepare=other)
    assert delegraph.map_table(pte, source, target, prepare=written(text, "<cell 7>")).resumed == 40


def test_two_runs_do_not_meet(pte: Path, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"

    def progress(progress: delegraph.MapProgress) -> None:
        with pytest.raises(InvalidState, match=r"another process works on .*out.parquet: .* is locked"):
            delegraph.map_table(pte, source, target)

    delegraph.map_table(pte, source, target, progress=progress)


def test_a_column_of_the_input_may_be_called_error(pte: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1.0, 2.0, 3.0]], "error": ["none"]}), tmp_path / "in.parquet")
    mapped = delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert (mapped.failed, table.column("error").to_pylist(), table.schema.metadata) == (0, ["none"], None)


def test_errors_of_an_earlier_run_are_not_taken_for_results(pte: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"x": pa.array([None] * 20 + [[1, 2, 3]] * 60, pa.list_(pa.float32()))}), source)
    _stopped(pte, source, target, on_error="record")
    with pytest.raises(InvalidState, match="an earlier run recorded errors of 20 rows; go on with on_error='record'"):
        delegraph.map_table(pte, source, target)


# ---- memory ----------------------------------------------------------------------------------------

PEAK = """
import resource, sys, delegraph
delegraph.map_table(*sys.argv[1:4], keep=[], part_rows=1000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.models
def test_memory_does_not_grow_with_rows(pte: Path, tmp_path: Path) -> None:
    """Of each input row 4 KB are read: 12 MB, then 240 MB."""
    peaks = []
    for count in (3_000, 60_000):
        source = tmp_path / f"{count}.parquet"
        schema = pa.schema({"x": pa.list_(pa.float32()), "padding": pa.binary()})
        with pq.ParquetWriter(source, schema, compression="none") as writer:
            for _ in range(count // 1000):
                wide = [os.urandom(4096) for _ in range(1000)]
                writer.write_table(pa.table({"x": [*np.ones((1000, 3), np.float32)], "padding": wide}, schema=schema))
        words = [sys.executable, "-c", PEAK, str(pte), str(source), str(tmp_path / "out.parquet")]
        ran = subprocess.run(words, capture_output=True, text=True, check=True)
        peaks.append(int(ran.stdout))
    assert peaks[1] < peaks[0] + 60, f"{peaks} MB"


# ---- the command -----------------------------------------------------------------------------------


def test_the_command_tells_what_it_did(
    pte: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.jsonl"
    words = ["map", str(pte), str(source), str(target), "--input", "x=x", "--output", "twice=output", "--keep", "id"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(f"{target}: 100 rows, 100 of them computed in ")
    first = json.loads(target.read_text().splitlines()[1])
    assert first == {"id": 1, "twice": [6.0, 8.0, 10.0]}


def test_the_commands_exit_code_says_of_errors(pte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"x": pa.array([[1, 2, 3], None], pa.list_(pa.float32()))}), tmp_path / "in.parquet")
    words = ["map", str(pte), str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")]
    assert main(words) == 1
    assert "row 1: input 'x': the row has null" in (told := capsys.readouterr().err) and "is kept" not in told
    assert main([*words, "--part-rows", "1"]) == 1
    assert "what is done is kept, and the same command goes on" in capsys.readouterr().err
    assert main([*words, "--on-error", "record", "--restart"]) == 3
    assert "2 rows" in (told := capsys.readouterr().out) and "1 have an error" in told


FUNCTIONS = """
from pathlib import Path
import numpy as np

def read(rows):
    return np.array([[float(Path(path).read_text())] * 3 for path in rows["path"]], np.float32)

def first(results):
    return results["output"][:, 0]
"""


def test_functions_of_one_file_are_sent_to_workers(
    pte: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for folder in (Path("texts"), Path("other")):
        folder.mkdir()
    for number in range(3):
        Path(f"texts/{number}.txt").write_text(str(number))
    for file in ("both.py", "other/both.py"):
        Path(file).write_text(FUNCTIONS)
    words = ["map", str(pte), "texts", "out.csv", "--workers", "2", "--function", "both.py:read", "--finish"]
    assert main([*words, "both.py:first"]) == 0
    assert pa.csv.read_csv("out.csv").column("output").to_pylist() == [0, 2, 4]
    with pytest.raises(SystemExit):
        main([*words, "other/both.py:first"])
    assert "both.py and other/both.py have one name, as modules; rename one" in capsys.readouterr().err


def test_words_that_make_no_sense(pte: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--input", "x"], "'x' is not COLUMN=NAME"),
        (["--input", "id=x", "--input", "x=x"], "'x' has two columns: 'id' and 'x'"),
        (["--function", "prepare"], "'prepare' names no function"),
    ):
        with pytest.raises(SystemExit):
            main(["map", str(pte), str(source), "out.parquet", *words])
        assert message in capsys.readouterr().err


def test_without_the_package_for_ray(
    pte: Path, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "delegraph_ray", None)
    assert main(["map", str(pte), str(source), "out.parquet", "--ray", "auto"]) == 1
    assert "--ray needs delegraph-ray, and delegraph_ray is not installed here" in capsys.readouterr().err


def test_without_pyarrow(pte: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyarrow", "delegraph.mapping."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    from delegraph.mapping.map_table import map_table

    with pytest.raises(NotInstalled, match=r'pyarrow, which is not installed: pip install "delegraph\[data\]"'):
        map_table(pte, source, "out.parquet")


def test_what_cannot_be_read_or_written(pte: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x")
    (tmp_path / "bad.parquet").write_text("x")
    (tmp_path / "dir.csv").mkdir()
    (tmp_path / "dir.csv" / "text.txt").write_text("x")
    (tmp_path / "old.csv").touch(0o444)
    for place, target, error, message in (
        ("none.parquet", "o.parquet", AccessFailed, "there is no file or folder"),
        ("in.txt", "o.parquet", InvalidArgument, "a file with rows is called .parquet, .arrow"),
        ("bad.parquet", "o.parquet", AccessFailed, "bad.parquet is no parquet that can be read"),
        ("in.parquet", "o.xlsx", InvalidArgument, "o.xlsx: the output is called .parquet, .arrow"),
        ("in.parquet", "none/o.parquet", InvalidArgument, "there is no folder .*none; make it first"),
        ("in.parquet", "dir.csv", InvalidArgument, "the output .*dir.csv is a folder; name a file in it"),
        ("in.parquet", "old.csv", InvalidArgument, "the output .*old.csv is there, and read-only; remove it"),
        ("dir.csv", "o.parquet", InvalidArgument, "no column 'x'; columns are path; a folder of files needs a fun"),
    ):
        with pytest.raises(error, match=message):
            delegraph.map_table(pte, tmp_path / place, tmp_path / target)
    with pytest.raises(InvalidArgument, match="has no column 'b'; columns are id, x; if it has another name: --input"):
        delegraph.map_table(pte, source, tmp_path / "o.parquet", inputs={"x": "b"})
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "0.parquet").write_bytes(source.read_bytes())
    for inside, target in ((source, source), (tmp_path / "tables", tmp_path / "tables" / "o.parquet")):
        with pytest.raises(InvalidArgument, match=r"lies in the input .*, which it would change; name another"):
            delegraph.map_table(pte, inside, target)
    with pytest.raises(InvalidArgument, match="part_rows=0, workers=1; both are at least 1"):
        delegraph.map_table(pte, source, tmp_path / "o.parquet", part_rows=0)
    with pytest.raises(InvalidArgument, match="column 'id' is in the input and among the results"):
        delegraph.map_table(pte, source, tmp_path / "o.parquet", outputs={"output": "id"})
    (tmp_path / "null.jsonl").write_text('{"x": [1, 2, null]}\n')
    with pytest.raises(InvalidType, match="row 0: input 'x' takes float32, and the row has null among its numbers"):
        delegraph.map_table(pte, tmp_path / "null.jsonl", tmp_path / "o.parquet")
    (tmp_path / "cut.jsonl").write_text('{"x": [1, 2, 3]}\n' * 3 + '{"x": [1, 2')
    with pytest.raises(AccessFailed, match=r"cut.jsonl (cannot be read behind row|is no json)"):
        delegraph.map_table(pte, tmp_path / "cut.jsonl", tmp_path / "o.parquet")
    assert not [*tmp_path.glob("*.parts")], "a run that has computed nothing leaves nothing"


def test_a_program_that_has_no_file(source: Path, tmp_path: Path) -> None:
    lowered = delegraph.lower(Doubled(), (torch.zeros(2, 3),))
    with pytest.raises(InvalidState, match="this Program was made of records, and has no file"):
        delegraph.map_table(delegraph.load(lowered.program.executorch_program), source, tmp_path / "o.parquet")
