"""The checks that every backend's runtime half makes of blobs and calls -> an answer, or an error with a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from delegraph.errors import DelegateInvalidCompatibility, Internal, InvalidExternalData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.interfaces.backend import Argument
    from delegraph.program.schema import Buffer

__all__ = ["is_used_in_place", "shape_in_run", "shared_data", "sizes_in_run", "split_arguments"]


def split_arguments(
    backend_id: str, args: Sequence[Argument], inputs: int, outputs: int
) -> tuple[Sequence[Argument], Sequence[Argument]]:
    """The inputs and the outputs among the arguments of a call, of which a blob says how many there are.

    Raises `Internal` if these are not as many: the file calls its delegate otherwise than it was compiled.
    """
    if len(args) != inputs + outputs:
        raise Internal(
            f"a delegate of {backend_id} takes {inputs} inputs and {outputs} outputs, and was called with {len(args)}"
            " arguments"
        )
    return args[:inputs], args[inputs:]


def shared_data(backend_id: str, named_data: Mapping[str, Buffer], key: str, nbytes: int) -> Buffer:
    """The named data of `key`, which has `nbytes` bytes by a blob (`BackendInitContext.named_data`).

    Data that the backend stored itself are called "BACKEND_ID/…"; every other key is an external weight's own. Raises
    `InvalidExternalData` where the `.ptd` file of such a weight was not given, and `DelegateInvalidCompatibility` for
    data that are not in the program or have another size.
    """
    data = named_data.get(key)
    if data is None and not key.startswith(f"{backend_id}/"):
        from delegraph.program.weights_origin import absent_weight

        raise InvalidExternalData(absent_weight(key, named_data))
    if data is None or memoryview(data).nbytes != nbytes:
        raise DelegateInvalidCompatibility(
            f"a blob of {backend_id} needs {nbytes} bytes of named data {key!r:.100}, and the program has"
            f" {'none' if data is None else memoryview(data).nbytes}; copy or lower the program again"
        )
    return data


def is_used_in_place(argument: Argument) -> TypeGuard[NDArray[Any]]:
    """Whether an engine may read or write it where it lies: a contiguous array, aligned."""
    import numpy as np

    return isinstance(argument, np.ndarray) and argument.flags.c_contiguous and argument.flags.aligned


def sizes_in_run(
    backend_id: str, shapes: Iterable[Sequence[int | str]], arrays: Iterable[NDArray[Any] | None]
) -> dict[str, int]:
    """The value of each symbol in the `shapes` of a delegate's inputs, of which a call gives `arrays`; None: no matter.

    Raises `Internal` for an array of another number of dims.
    """
    sizes: dict[str, int] = {}
    for shape, array in zip(shapes, arrays, strict=True):
        if array is not None:
            if len(shape) != array.ndim:
                raise Internal(f"an input of a delegate of {backend_id} has {array.ndim} dims, not {len(shape)}")
            sizes.update({dim: size for dim, size in zip(shape, array.shape, strict=True) if isinstance(dim, str)})
    return sizes


def shape_in_run(shape: Sequence[int | str], sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of an output where symbols have these `sizes`; None: the run alone tells."""
    known = tuple(sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in shape)
    return None if -1 in known else known
