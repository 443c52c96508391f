"""Path of an `.npy` or `.npz` file -> its arrays, for `--inputs` and `--data`."""

from __future__ import annotations

import zlib
from argparse import ArgumentError
from collections.abc import Mapping
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_NAME", "arrays_in"]

NO_NAME: Final = "(no name)"

# RuntimeError: a member with a password; NotImplementedError is one: a compression that zipfile has not.
_UNREADABLE: Final = (ValueError, EOFError, RuntimeError, BadZipFile, zlib.error)
"""Raised by NumPy, and by the modules that it reads with, for files that are damaged or of another kind."""


def arrays_in(path: str, option: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name, in its order; that of an .npy file as `NO_NAME`.

    Raises `ArgumentError`, which names `option`, for what is neither, and for a file that cannot be read.
    """
    try:
        with open(path, "rb") as file:  # which NumPy leaves open where it is no archive after all
            loaded = np.load(file, allow_pickle=False)
            return dict(loaded) if isinstance(loaded, Mapping) else {NO_NAME: loaded}
    except OSError as error:
        raise ArgumentError(None, f"{option}: {path}: {error.strerror or error}") from error
    except _UNREADABLE as error:
        raise ArgumentError(None, f"{option}: {path} is neither .npy nor .npz: {error}") from error
