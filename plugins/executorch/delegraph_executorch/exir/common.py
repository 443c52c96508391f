"""ExecuTorch's `executorch.exir.common`: schemas by name, logging and torch's dispatch for a while."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

__all__ = [
    "extract_out_arguments",
    "format_schema_name",
    "get_schema_for_operators",
    "no_dispatch",
    "override_logger",
    "setting_python_recursive_limit",
]

T = TypeVar("T")


@contextmanager
def no_dispatch() -> Iterator[None]:
    """Without `__torch_dispatch__` of modes and tensor classes."""
    guard = torch._C._DisableTorchDispatch()
    try:
        yield
    finally:
        del guard


def get_schema_for_operators(ops: Sequence[str]) -> dict[str, str]:
    """`torch.ops.aten.add.Tensor` … -> `{"aten::add.Tensor": its schema}`, for reading: it asks for all of them."""
    known = {f"{s.name}.{s.overload_name or 'default'}": str(s) for s in torch._C._jit_get_all_schemas()}
    names = [re.sub(r"^torch\.ops\.([^.]+)\.", r"\1::", op) for op in ops]
    return {name: known.get(name, "<No Schema Found>") for name in names}


def extract_out_arguments(schema: Any, keyword_args: Mapping[str, T]) -> tuple[str, T] | list[tuple[str, T]]:
    """The out arguments among `keyword_args`, each with its name; the pair alone where there is one."""
    found = [(a.name, keyword_args[a.name]) for a in schema.arguments if a.is_out and a.name in keyword_args]
    if not found and "out" in keyword_args:  # a list of tensors is not marked as out
        found = [("out", keyword_args["out"])]
    return found[0] if len(found) == 1 else found


def format_schema_name(schema: Any) -> str:
    """`aten::add.Tensor`, or `aten::relu` for a default overload."""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


@contextmanager
def override_logger(
    newLevel: int = logging.DEBUG,
    fmtstr: str = "%(message)s",
    filename: str | None = None,
) -> Iterator[None]:
    """The root logger at another level and in another format, and written to a file that is made anew."""
    root = logging.getLogger()
    level, formatters = root.level, [(handler, handler.formatter) for handler in root.handlers]
    added = logging.FileHandler(filename, mode="w") if filename else None
    try:
        root.setLevel(newLevel)
        for handler, _ in formatters if fmtstr else ():
            handler.setFormatter(logging.Formatter(fmtstr))
        if added is not None:
            root.addHandler(added)
        yield
    finally:
        root.setLevel(level)
        for handler, formatter in formatters:
            handler.setFormatter(formatter)
        if added is not None:
            root.removeHandler(added)
            added.close()


@contextmanager
def setting_python_recursive_limit(limit: int = 10000) -> Iterator[None]:
    """Python's recursion limit at least `limit`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, before))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
