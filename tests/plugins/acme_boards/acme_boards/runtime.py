"""Runs the instructions of the board that is there, with NumPy in the place of the silicon."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acme_boards import CODES
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import (
    Argument,
    Availability,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    BlobStamp,
    Buffer,
    Compatibility,
    CompileSpec,
    Verdict,
)

Compute = Callable[..., Any]
COMPUTE: dict[str, Compute] = {"add": np.add, "relu": lambda x: np.maximum(x, 0)}


class BoardBackend(BackendInterface):
    """The runtime half behind the backend id `AcmeBoard`."""

    delegraph_api = (1, 1)
    blob_version = 1

    def is_available(self) -> Availability:
        board = os.environ.get("ACME_BOARD", "r2")
        return Availability(board != "none", "no board is plugged in", "plug one in")

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        board = os.environ.get("ACME_BOARD", "r2")
        if stamp is not None and stamp.variant != board:
            return Compatibility(Verdict.REFUSE, f"it is for {stamp.variant}, and the board is {board}")
        return super().check(stamp)

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Compute:
        codes = CODES[os.environ.get("ACME_BOARD", "r2")]
        names = {bytes([code]): name for name, code in codes.items()}
        if bytes(processed) not in names:
            raise DelegateInvalidCompatibility(f"this board has no instruction {bytes(processed)!r}")
        return COMPUTE[names[bytes(processed)]]

    def execute(self, context: BackendExecutionContext, handle: Compute, args: Sequence[Argument]) -> None:
        *inputs, out = args
        result = handle(*inputs)
        np.copyto(context.resize(out, result.shape), result)  # type: ignore[type-var, arg-type]
