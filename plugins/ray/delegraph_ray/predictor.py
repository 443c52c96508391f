"""The class for `Dataset.map_batches`: a program in an actor, columns in and columns out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import ray

import delegraph
from delegraph.errors import DelegraphError, InvalidType
from delegraph_ray.shipping import Shipped, kept_file

__all__ = ["DelegraphPredictor"]

ProgramFile: TypeAlias = "str | os.PathLike[str] | Shipped | bytes | ray.ObjectRef"


class DelegraphPredictor:
    """Calls a program on batches of rows, in the actors of `map_batches`.

        results = dataset.map_batches(
            DelegraphPredictor,
            fn_constructor_kwargs={"path": "/shared/model.pte"},
            compute=ray.data.ActorPoolStrategy(size=4),
            batch_format="numpy",
        )

    path: the program: a path that each node has, or, where nodes do not share a disk, `shipped("model.pte")`, which
        brings the file to each node once. Its bytes, or what `ray.put` made of them, come to a node the same way. All
        actors of a node map one file: its weights are in memory once.
    data_path: the files with its external weights, each as `path`.
    keep: the columns of the rows that the result has; None: all.
    backend_options, kernels, and other `load` options: as `delegraph.load` takes them.
    methods, inputs, outputs, batch_size, prepare, finish, on_error: see `delegraph.RowMapper`.

    Batches are "numpy" or "pandas". Raises what loading raises, with the node's address: a backend that is not
    installed there is named.
    """

    def __init__(
        self,
        path: ProgramFile,
        *,
        data_path: Sequence[ProgramFile] = (),
        keep: Sequence[str] | None = None,
        methods: Sequence[str] = (),
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        batch_size: int | None = None,
        prepare: Any = None,
        finish: Any = None,
        on_error: Any = "stop",
        **load: Any,
    ) -> None:
        self._keep = keep
        try:
            if data_path:
                load["data_path"] = [_local(file) for file in data_path]
            module = delegraph.load(_local(path), method=next(iter(methods), "forward"), **load)
            self._mapper = delegraph.RowMapper(
                module, methods, inputs or {}, outputs or {}, batch_size, prepare, finish, on_error
            ).loaded()
        except DelegraphError as error:
            raise type(error)(f"on node {ray.util.get_node_ip_address()}: {error}") from error

    def __call__(self, batch: Any) -> Any:
        """The rows of `batch` with their results. Raises what the first row that fails raises, unless errors are
        recorded."""
        if isinstance(batch, Mapping):
            kept = batch if self._keep is None else {name: batch[name] for name in self._keep}
            return {**kept, **self._mapper(batch)}
        if not hasattr(batch, "assign"):
            raise InvalidType(f"a batch is a {type(batch).__name__}; say batch_format='numpy' or 'pandas'")
        results = self._mapper(batch)
        new = [name for name in results.columns if name not in batch.columns]
        return results if self._keep is None else results[[*self._keep, *new]]


def _local(file: ProgramFile) -> str | os.PathLike[str]:
    """Where this node has the file."""
    if isinstance(file, ray.ObjectRef):
        file = bytes(ray.get(file))
    if isinstance(file, bytes):
        return kept_file(file)
    return file.path() if isinstance(file, Shipped) else file
