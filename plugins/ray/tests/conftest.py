"""A cluster of two nodes on this machine, each with a folder of its own for shipped files, and a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import delegraph

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # elsewhere too: nodes have the loopback's address
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@dataclass(frozen=True)
class Nodes:
    """The cluster's address, and the folder for shipped files of each node."""

    address: str
    caches: tuple[Path, Path]

    def files(self) -> list[list[str]]:
        """The names of the files that were shipped to each node."""
        return [sorted(os.listdir(cache)) if cache.exists() else [] for cache in self.caches]


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    import ray
    import ray.data
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("nodes")
    caches = folder / "first", folder / "second"
    cluster = Cluster()
    for cache in caches:
        cluster.add_node(
            num_cpus=2,
            object_store_memory=150 * 2**20,
            include_dashboard=False,
            node_ip_address="127.0.0.1",
            env_vars={"DELEGRAPH_RAY_CACHE": str(cache), "RAY_DISABLE_METRICS_COLLECTION": "1"},
        )
    ray.init(address=cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield Nodes(cluster.address, caches)
    ray.shutdown()
    cluster.shutdown()


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(scope="session")
def program() -> bytes:
    """Doubles rows of 3, up to 8 at a time, on onnxruntime."""
    sizes = {"x": {0: Dim("batch", max=8)}}
    backends = ["cpu{allow_trivial=true}"]
    return bytes(delegraph.lower(Doubled(), (torch.zeros(2, 3),), dynamic_shapes=sizes, backends=backends))


@pytest.fixture
def pte(program: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "m.pte"
    path.write_bytes(program)
    return path
