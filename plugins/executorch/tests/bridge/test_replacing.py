"""What the bridge puts in the place of ExecuTorch's and torch's methods is this thread's, and gone afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

import delegraph
from delegraph_executorch.bridge.replacing import replaced

from .models import mlp


class Clock:
    def time(self) -> str:
        return "its own"


def other(self: Clock) -> str:
    return "another"


def in_another_thread(call: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(timeout=10)
    return found[0] if found else "still waiting"


def test_only_this_thread_gets_it() -> None:
    with replaced(Clock, "time", other):
        assert (Clock().time(), in_another_thread(Clock().time)) == ("another", "its own")
    assert Clock().time() == "its own"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_is_gone_however_the_block_is_left(error: type[BaseException]) -> None:
    method = Clock.time
    with pytest.raises(error), replaced(Clock, "time", other):
        raise error
    assert Clock.time is method


def test_blocks_within_each_other() -> None:
    with replaced(Clock, "time", other):
        with replaced(Clock, "time", lambda self: "a third"):
            assert Clock().time() == "a third"
        assert Clock().time() == "another"


def test_another_thread_that_replaces_it_too_waits() -> None:
    seen: list[str] = []

    def replace() -> None:
        with replaced(Clock, "time", lambda self: "theirs"):
            seen.append(Clock().time())

    thread = threading.Thread(target=replace)
    with replaced(Clock, "time", other):
        thread.start()
        assert Clock().time() == "another"
        assert not seen
    thread.join(timeout=10)
    assert seen == ["theirs"]
    assert Clock().time() == "its own"


@pytest.mark.executorch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("half", ["partition", "preprocess"])
def test_a_lowering_that_is_interrupted_leaves_their_classes_as_they_were(
    half: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
    from executorch.exir import pass_base
    from executorch.exir.backend import utils

    def methods() -> list[Any]:
        owners = (pass_base._ExportPassBase, "call"), (GraphModule, "recompile"), (utils.WhyNoPartition, "__call__")
        return [vars(owner)[name] for owner, name in (*owners, (utils.WhyNoPartitionReporter, "report_reject"))]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise error("stop")

    before = methods()
    monkeypatch.setattr(*((XnnpackPartitioner, half) if half == "partition" else (XnnpackBackend, half)), interrupted)
    model, args = mlp()
    with pytest.raises((delegraph.errors.DelegraphError, KeyboardInterrupt)):
        delegraph.lower(model, args, backends=["executorch:xnnpack"])
    assert all(one is other for one, other in zip(methods(), before, strict=True))
    monkeypatch.undo()
    assert delegraph.lower(model, args, backends=["executorch:xnnpack"]).report.methods["forward"].delegates
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(*args), model(*args))
