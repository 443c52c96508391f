"""Rows on a real cluster of two nodes: where programs come from, what is wrong with rows, and actors that die."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import delegraph

ray = pytest.importorskip("ray", reason="`make test-ray` installs Ray beside .venv")
from delegraph_ray import DelegraphPredictor, RayExecutor, shipped  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning")),  # Ray's own
]

ROWS = 200
X = np.arange(3 * ROWS, dtype=np.float32).reshape(ROWS, 3)


def rows() -> Any:
    return ray.data.from_items([{"id": n, "x": X[n]} for n in range(ROWS)], override_num_blocks=8)


def mapped(path: Any, batch_format: str = "numpy", concurrency: int = 2, **options: Any) -> Any:
    return rows().map_batches(
        DelegraphPredictor,
        fn_constructor_kwargs={"path": path, **options},
        concurrency=concurrency,
        batch_size=25,
        batch_format=batch_format,
        num_cpus=1,
    )


def check(dataset: Any, column: str = "output") -> None:
    results = sorted(dataset.take_all(), key=lambda row: row["id"])
    np.testing.assert_array_equal(np.stack([row[column] for row in results]), X * 2)


@pytest.mark.parametrize("batch_format", ["numpy", "pandas"])
def test_rows_with_their_results(nodes: Any, pte: Path, batch_format: str) -> None:
    check(mapped(pte, batch_format))


def test_columns_that_are_kept(nodes: Any, pte: Path) -> None:
    dataset = mapped(pte, keep=["id"], outputs={"output": "twice"})
    assert dataset.schema().names == ["id", "twice"]
    check(dataset, "twice")


@pytest.mark.parametrize("kind", [shipped, lambda path: path.read_bytes(), lambda path: ray.put(path.read_bytes())])
def test_a_program_comes_to_nodes_that_do_not_have_it(nodes: Any, pte: Path, kind: Callable[[Path], Any]) -> None:
    for cache in nodes.caches:
        shutil.rmtree(cache, ignore_errors=True)
    program = kind(pte)
    pte.unlink()
    check(mapped(program, concurrency=4))
    assert [[Path(name).suffix for name in names] for names in nodes.files()] == [[".pte"], [".pte"]]


@ray.remote(num_cpus=1)
class Opened:
    """An actor that opens a shipped file, as those of `map_batches` do."""

    def __init__(self, file: Any) -> None:
        self.predictor = DelegraphPredictor(file)

    def mapped_files(self) -> list[str]:
        """The files that this process has mapped."""
        return [line.split()[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines() if ".pte" in line]


def test_all_actors_of_a_node_map_one_file(nodes: Any, tmp_path: Path) -> None:
    """Small files are read, and not mapped: this one has 17 MB of weights."""
    model = torch.nn.Linear(2100, 2100).eval()
    delegraph.lower(model, (torch.zeros(1, 2100),), backends=["cpu"]).save(tmp_path / "large.pte")
    program = shipped(tmp_path / "large.pte")
    actors = [Opened.options(scheduling_strategy="SPREAD").remote(program) for _ in range(4)]
    files = [set(names) for names in ray.get([actor.mapped_files.remote() for actor in actors])]
    assert all(len(names) == 1 for names in files)
    assert len(set.union(*files)) == 2  # one for each node


def test_a_damaged_file_in_the_cache_is_fetched_again(nodes: Any, pte: Path) -> None:
    program = shipped(pte)
    for cache in nodes.caches:
        cache.mkdir(exist_ok=True)
        (cache / f"{program.digest}.pte").write_bytes(b"cut off")
    check(mapped(program))


def failure(dataset: Any) -> str:
    with pytest.raises(Exception, match=r".") as caught:
        dataset.take_all()
    return str(caught.value)


def test_a_folder_in_which_nothing_can_be_written(
    nodes: Any, pte: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELEGRAPH_RAY_CACHE", str(pte / "below"))  # a file
    with pytest.raises(delegraph.RuntimeFault, match=r"DELEGRAPH_RAY_CACHE: no folder for shipped files: "):
        shipped(pte).path()
    with pytest.raises(delegraph.RuntimeFault, match=r"none.pte: cannot be read, to be shipped: "):
        shipped(tmp_path / "none.pte")


def test_a_path_that_a_node_does_not_have(nodes: Any) -> None:
    told = failure(mapped("/nowhere/m.pte"))
    assert "AccessFailed" in told and "on node " in told and "/nowhere/m.pte" in told


def test_a_plug_in_that_a_node_does_not_have_is_named(nodes: Any, program: bytes) -> None:
    dataset = rows().map_batches(
        DelegraphPredictor,
        fn_constructor_kwargs={"path": program},
        concurrency=1,
        num_cpus=1,
        runtime_env={"env_vars": {"DELEGRAPH_DISABLE_PLUGINS": "delegraph-cpu"}},
    )
    told = failure(dataset)
    assert "BackendMissing" in told and "on node " in told and "CpuBackend" in told


def test_errors_are_a_column(nodes: Any, pte: Path) -> None:
    def broken(columns: Any) -> Any:
        if 7 in columns["id"]:
            raise ValueError("seven")
        return columns["x"]

    results = mapped(pte, prepare=broken, on_error="record").take_all()
    assert {row["id"]: row["error"] for row in results if row["error"]} == {7: "prepare raised ValueError: seven"}
    assert "row 7: prepare raised ValueError: seven" in failure(mapped(pte, prepare=broken).limit(25))


def test_a_batch_that_is_no_columns(nodes: Any, pte: Path) -> None:
    assert "a batch is a Table; say batch_format='numpy' or 'pandas'" in failure(mapped(pte, "pyarrow"))


def test_an_actor_that_is_killed_loses_nothing(nodes: Any, pte: Path, tmp_path: Path) -> None:
    mark = str(tmp_path / "died")

    def dies_once(columns: Any) -> Any:
        if 50 in columns["id"] and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 9)
        return columns["x"]

    check(mapped(pte, prepare=dies_once))
    assert os.path.exists(mark)


# ---- map_table and the command on the cluster ------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"id": range(ROWS), "x": [*X]}), tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def check_file(path: Path) -> None:
    table = pq.read_table(path)
    assert table["id"].to_pylist() == list(range(ROWS))
    np.testing.assert_array_equal(np.stack(table["output"].to_pylist()), X * 2)


def test_a_table_on_the_cluster(nodes: Any, pte: Path, source: Path, tmp_path: Path) -> None:
    """An actor dies meanwhile; the program's file is not that of the nodes."""
    for cache in nodes.caches:
        shutil.rmtree(cache, ignore_errors=True)
    mark = str(tmp_path / "died")

    def dies_once(columns: Any) -> Any:
        if 50 in columns["id"] and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 9)
        return columns["x"]

    with RayExecutor(nodes.address, 2) as executor:
        delegraph.map_table(pte, source, tmp_path / "out.parquet", workers=executor, part_rows=16, prepare=dies_once)
    assert os.path.exists(mark)
    check_file(tmp_path / "out.parquet")
    assert [len(names) for names in nodes.files()] == [1, 1]


def test_a_row_that_fails_on_the_cluster(nodes: Any, pte: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([[1, 2, 3], None], pa.list_(pa.float32()))}), tmp_path / "in.parquet")
    with (
        RayExecutor(nodes.address) as executor,
        pytest.raises(delegraph.RuntimeFault, match=r"^row 1: input 'x': the row has null$"),
    ):
        delegraph.map_table(pte, tmp_path / "in.parquet", tmp_path / "out.parquet", workers=executor)


def test_the_command_on_the_cluster(nodes: Any, pte: Path, source: Path, tmp_path: Path) -> None:
    """The function's file is on no path of the nodes."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "myprepare.py").write_text("def pixels(rows):\n    return rows['x']\n")
    words = ["map", str(pte), str(source), str(tmp_path / "out.parquet"), "--workers", "2", "--part-rows", "64"]
    words += ["--function", str(tmp_path / "mine" / "myprepare.py:pixels"), "--ray", nodes.address]
    ran = subprocess.run([sys.executable, "-m", "delegraph", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    check_file(tmp_path / "out.parquet")
