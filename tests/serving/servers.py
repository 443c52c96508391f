"""A command that serves -> its address once it answers; a load generator on loopback; the page's own files."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import torch
from numpy.typing import NDArray
from tests.test_docs import FILE, ROOT
from torch.export import Dim

import delegraph

__all__ = [
    "BIN",
    "PAGE",
    "Load",
    "Net",
    "Server",
    "free_port",
    "lower",
    "predict",
    "serve",
    "under_load",
    "write_files",
]

PAGE = ROOT / "docs" / "serving.md"
BIN = Path(sys.executable).parent
PATIENCE = 60
"""Seconds after which a server that says nothing has failed."""


def write_files(folder: Path) -> dict[str, str]:
    """The page's files, written there; their texts by name."""
    files = dict(FILE.findall(PAGE.read_text("utf-8")))
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return files


class Net(torch.nn.Module):
    """8 features -> 4 scores; `depth` layers make it slow."""

    def __init__(self, seed: int, depth: int = 1, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(seed)
        sizes = [8, *[width] * depth]
        layers = [layer for pair in pairwise(sizes) for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def lower(net: Net, path: Path) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Lower `net` with a dynamic batch into `path`; returns what its answers must be."""
    lowered = delegraph.lower(net.eval(), torch.randn(2, 8), dynamic_shapes={0: Dim("batch", max=64)}, backends=["cpu"])
    lowered.save(path)
    return lambda x: net(torch.from_numpy(x)).detach().numpy()  # type: ignore[no-any-return]


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@dataclass
class Server:
    """A server's process, with what it writes."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def told(self, words: str, times: int = 1) -> None:
        """Wait until it has written `words` so many times."""
        until(lambda: self.log.read_text("utf-8").count(words) >= times, lambda: self.log.read_text("utf-8"))

    def hangup(self) -> None:
        """Tell it to take another model."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self, *, refused: bool = False) -> str:
        """Stop it, as systemd does; what it wrote. Fails unless it ends by itself, in the ordinary way, and has written
        a traceback just where it `refused` a file."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        text = self.log.read_text("utf-8")
        assert code in (0, -signal.SIGTERM), text
        assert ("Traceback" in text) is refused and "Exception in ASGI" not in text, text
        return text


def until(true: Callable[[], bool], explanation: Callable[[], str]) -> None:
    """Wait for what is to become true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, explanation()
        time.sleep(0.02)


@contextmanager
def serve(
    command: Sequence[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run `command` in `folder` until it is ready at `port`; it is killed in the end, if it was not stopped."""
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            list(command), cwd=folder, stdout=file, stderr=file, env={**os.environ, **(environment or {})}
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text("utf-8")
        try:
            return httpx.get(f"{server.url}/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(is_ready, lambda: log.read_text("utf-8"))
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


async def predict(client: httpx.AsyncClient, x: NDArray[np.float32]) -> tuple[int, NDArray[np.float32] | None]:
    """The status and the scores of a request."""
    response = await client.post("/predict", json={"x": x.tolist()})
    return response.status_code, np.array(response.json(), np.float32) if response.status_code == 200 else None


@dataclass
class Load:
    """What came of a load: how many answers had each status, and how many of 200 fitted none of the models."""

    statuses: Counter[int]
    wrong: int
    by_model: Counter[int]


def under_load(
    server: Server,
    models: Sequence[Callable[[NDArray[np.float32]], NDArray[np.float32]]],
    requests: int = 400,
    clients: int = 16,
    meanwhile: Callable[[Load], Awaitable[None]] | None = None,
) -> Load:
    """Requests of 1 to 4 rows from so many clients, until as many were made and `meanwhile` is over."""
    return asyncio.run(_under_load(server, models, requests, clients, meanwhile))


async def _under_load(
    server: Server,
    models: Sequence[Callable[[NDArray[np.float32]], NDArray[np.float32]]],
    requests: int,
    clients: int,
    meanwhile: Callable[[Load], Awaitable[None]] | None,
) -> Load:
    load, random = Load(Counter(), 0, Counter()), np.random.default_rng(0)
    is_over = asyncio.Event()
    made = 0

    async def client() -> None:
        nonlocal made
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as session:
            while made < requests or not is_over.is_set():
                made += 1
                x = random.standard_normal((int(random.integers(1, 5)), 8)).astype(np.float32)
                status, scores = await predict(session, x)
                load.statuses[status] += 1
                if scores is None:
                    continue
                fitting = [number for number, of in enumerate(models) if np.allclose(scores, of(x), atol=1e-4)]
                load.wrong += not fitting
                load.by_model[fitting[0] if fitting else -1] += 1

    async def events() -> None:
        if meanwhile is not None:
            await meanwhile(load)
        is_over.set()

    await asyncio.gather(events(), *(client() for _ in range(clients)))
    return load
