"""What a backend's runtime half asks of every blob and call -> an answer, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from delegraph.errors import DelegateInvalidCompatibility, Internal, InvalidExternalData

if TYPE_CHECKING:
    from delegraph.interfaces.backend import Argument
    from delegraph.program.schema import Buffer

__all__ = ["shared_data", "split_arguments"]


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
    """The named data of `key`, which a blob wants to have `nbytes` bytes (`BackendInitContext.named_data`).

    What the backend stored itself is called "BACKEND_ID/…"; every other key is an external weight's own. Raises
    `InvalidExternalData` where the `.ptd` file of such a weight was not given, and `DelegateInvalidCompatibility` for
    what is not in the program or has another size.
    """
    found = named_data.get(key)
    if found is None and not key.startswith(f"{backend_id}/"):
        raise InvalidExternalData(
            f"the data of {key!r:.100} is in a .ptd file; pass it as data_path=…, with all others of the model"
        )
    if found is None or memoryview(found).nbytes != nbytes:
        raise DelegateInvalidCompatibility(
            f"a blob of {backend_id} needs {nbytes} bytes of named data {key!r:.100}, and the program has"
            f" {'none' if found is None else memoryview(found).nbytes}; copy or lower the program again"
        )
    return found
