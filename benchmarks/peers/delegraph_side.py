"""Delegraph on its CPU backend, or on another one that the peer's name ends with."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

RECIPES: Final = {"int8": "int8", "int8_dynamic": "int8_dynamic", "int4": "int4_weight_only"}


def prepare(peer: str, precision: str, model: Any, data: Any, folder: Path) -> float:
    """Write the program; returns the seconds that quantizing took, export and calibration included."""
    import delegraph
    from benchmarks.peers.models import Narrow

    calibration, own = 0.0, _backend(peer)
    if precision == "bfloat16":
        model = Narrow(model)
    if precision in RECIPES:
        start = time.perf_counter()
        model = delegraph.quantize(model, data, recipe=RECIPES[precision], backends=[own])
        calibration = time.perf_counter() - start
        # XNNPACK and OpenVINO round the values, too, that they multiply with weights of 4 bits
        backend = f"{own}{{int8_products=true}}" if precision == "int4" else own
        lowered = delegraph.lower(model, backends=[backend])
    else:
        lowered = delegraph.lower(model, data[0], backends=[own])
    lowered.save(folder / "model.pte")
    return calibration


def load(peer: str, precision: str, folder: Path, arrays: list[Any], threads: int) -> Callable[[], Any]:
    """A call that gives the first output."""
    import delegraph

    options = {_backend(peer): {"num_threads": threads}}
    method = delegraph.load(folder / "model.pte", backend_options=options)["forward"].method
    return lambda: method.execute(arrays)[0]


def _backend(peer: str) -> str:
    """`delegraph on openvino` is on `openvino`."""
    return peer.partition(" on ")[2] or "cpu"
