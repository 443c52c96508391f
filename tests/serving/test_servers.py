"""The servers of docs/serving.md under load: no 500, no wrong answer, another model without a stop, a graceful end."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.serving.servers import BIN, Load, Net, free_port, lower, predict, serve, under_load, until, write_files

pytestmark = [pytest.mark.serving, pytest.mark.skipif(not hasattr(os, "fork"), reason="servers of POSIX systems")]


def uvicorn(app: str, port: int, *words: str) -> list[str]:
    # Clients that compute for long do not find their connections closed.
    return [str(BIN / "uvicorn"), app, "--port", str(port), "--no-access-log", "--timeout-keep-alive", "60", *words]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path)
    return tmp_path


OBVIOUS = """
import numpy as np
from fastapi import FastAPI
import delegraph
model = delegraph.load("model.pte")
app = FastAPI()
@app.post("/predict")
def predict(rows: dict[str, list[list[float]]]) -> list[list[float]]:
    return model(np.array(rows["x"], np.float32)).tolist()
@app.get("/ready")
def ready() -> str:
    return "yes"
"""


def test_the_obvious_server(folder: Path) -> None:
    """One module, called by FastAPI's threads."""
    expected = lower(Net(0, depth=3, width=256), folder / "model.pte")
    (folder / "obvious.py").write_text(OBVIOUS, "utf-8")
    port = free_port()
    with serve(uvicorn("obvious:app", port), folder, port) as server:
        load = under_load(server, [expected], requests=600, clients=24)
        assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        server.stop()


def test_the_server_of_the_page(folder: Path) -> None:
    expected = lower(Net(0), folder / "model.pte")
    port = free_port()
    with serve(uvicorn("app:app", port), folder, port) as server:
        load = under_load(server, [expected], requests=600, clients=24)
        assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        for wrong in ({"x": [[1.0] * 7]}, {"x": [[1.0] * 8, [1.0]]}, {"x": [[1.0] * 8] * 65}, {"y": 1}):
            assert httpx.post(f"{server.url}/predict", json=wrong).status_code == 422
        assert httpx.get(f"{server.url}/live").status_code == 200
        metrics = httpx.get(f"{server.url}/metrics").text
        assert f'model_calls_total{{status="200"}} {load.statuses.total():.1f}' in metrics
        assert "model_seconds_bucket" in metrics and "model_calls_in_progress 0.0" in metrics
        assert "Application shutdown complete" in server.stop()


SLOW = {"depth": 12, "width": 2048}
"""A model that takes tens of milliseconds a call."""


def test_too_many_calls_are_503_and_nothing_else(folder: Path) -> None:
    expected = lower(Net(0, **SLOW), folder / "model.pte")
    port = free_port()
    with serve(uvicorn("app:app", port), folder, port, {"WORKERS": "1", "MAX_WAITING": "0"}) as server:
        load = under_load(server, [expected], requests=300, clients=48)
        assert set(load.statuses) == {200, 503} and load.wrong == 0
        assert httpx.get(f"{server.url}/ready").status_code == 200
        server.stop()


def in_progress(url: str) -> int:
    told = re.search(r"^model_calls_in_progress (\S+)", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    assert told is not None
    return int(float(told[1]))


def test_calls_that_came_before_the_end_are_answered(folder: Path) -> None:
    expected = lower(Net(0, **SLOW), folder / "model.pte")
    x = np.ones((4, 8), np.float32)
    port = free_port()
    with serve(uvicorn("app:app", port), folder, port) as server:

        async def calls_at_the_end() -> list[object]:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                calls = [asyncio.create_task(predict(client, x)) for _ in range(40)]
                while await asyncio.to_thread(in_progress, server.url) < 10:
                    await asyncio.sleep(0)
                stopping = asyncio.to_thread(server.stop)
                return [*await asyncio.gather(*calls, return_exceptions=True), await stopping]

        *answers, log = asyncio.run(calls_at_the_end())
        answered = [answer for answer in answers if isinstance(answer, tuple)]
        # Those that stood before the door when it closed were not taken on, and the client was told so.
        assert all(isinstance(answer, tuple | httpx.TransportError) for answer in answers)
        assert len(answered) >= 10 and {status for status, _ in answered} == {200}
        assert all(np.allclose(scores, expected(x), atol=1e-4) for _, scores in answered)
        assert "Application shutdown complete" in str(log)


def test_another_model_and_the_former_one_again(folder: Path) -> None:
    models = folder / "models"
    models.mkdir()
    expected = [lower(Net(seed), models / f"{seed}.pte") for seed in (1, 2)]
    (models / "3.pte").write_bytes(b"no program")

    def link(name: str) -> None:
        (folder / "next").symlink_to(models / name)
        os.replace(folder / "next", folder / "model.pte")

    link("1.pte")
    port = free_port()
    with serve(uvicorn("app:app", port), folder, port) as server:

        async def replacements(load: Load) -> None:
            for number in (1, 0, 1, 0):
                link(f"{number + 1}.pte")
                before = load.by_model[number]
                server.hangup()
                while load.by_model[number] == before:
                    await asyncio.sleep(0.01)
            link("3.pte")
            server.hangup()
            await asyncio.to_thread(server.told, "kept the model that was there")

        load = under_load(server, expected, meanwhile=replacements)
        assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        assert len(load.by_model) == 2
        after = under_load(server, expected, requests=20)
        assert after.by_model == {0: after.statuses.total()}  # what cannot be loaded changed nothing
        assert "InvalidProgram: not a .pte" in server.stop(refused=True)


@pytest.mark.parametrize("preload", [False, True])
def test_gunicorn(folder: Path, preload: bool) -> None:
    """Two processes; the app, and where it is preloaded a model, of the parent."""
    expected = [lower(Net(seed), folder / f"{seed}.pte") for seed in (1, 2)]
    os.replace(folder / "1.pte", folder / "model.pte")
    app = "app:app"
    if preload:
        app = "early:app"
        early = "import app as page\nfrom app import app\nmodel = page.checked()\npage.checked = lambda: model\n"
        (folder / "early.py").write_text(early, "utf-8")
    port = free_port()
    command = [str(BIN / "gunicorn"), app, "--bind", f"127.0.0.1:{port}", *(["--preload"] if preload else [])]
    with serve([*command, "-c", "gunicorn.conf.py"], folder, port) as server:

        async def reload() -> None:
            os.replace(folder / "2.pte", folder / "model.pte")
            server.hangup()
            await asyncio.to_thread(server.told, "Application startup complete", 4)

        load = under_load(server, expected[:1])
        assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        if not preload:  # a preloaded model is the parent's, for good
            asyncio.run(reload())
            until(
                lambda: under_load(server, expected, 20).by_model.keys() == {1}, lambda: server.log.read_text("utf-8")
            )
            load = under_load(server, expected[1:])
            assert load.statuses == {200: load.statuses.total()} and load.wrong == 0
        server.stop()
