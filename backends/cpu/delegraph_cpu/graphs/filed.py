"""An initializer that onnxruntime wrote, perhaps packed for this processor, <-> a file of its own with all its forms.

onnxruntime writes such a tensor and its packed form into one file of all weights, and says where in the tensor's
external data (1.31, `tensor_external_data_info.cc`):

    offset 10588160    length 1638400    prepacked_0 MatMul+3405803644832710536|12226560;1638400;0

The key names the kernel and a hash of what it packed; behind it, each piece has an offset, a size and a number that is
left as it is. A file for each tensor has the same content whichever graph reads it, so that it is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from delegraph.lazy_dataclass import dataclass
from delegraph_cpu.blob import ITEM_SIZES
from delegraph_cpu.graphs.checks import ELEMENT_TYPES, EXTERNAL
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.wire import refused

__all__ = ["FiledTensor", "filed_tensor", "in_file"]

_PACKED: Final = "prepacked_0"
_FORM: Final = re.compile(r"([A-Za-z0-9_]{1,80}\+\d{1,20})((?:\|\d{1,19};\d{1,19};\d{1,19}){1,16})")
_PAGE: Final = 2**16
"""Where pieces begin, so that each can be mapped: the largest page of the systems that there are."""


@dataclass(frozen=True, slots=True)
class FiledTensor:
    """Where a tensor lies, and the pieces of its packed form, if `key` names one: offsets and sizes, and what
    onnxruntime says besides."""

    file: str
    offset: int
    nbytes: int
    key: str
    pieces: tuple[tuple[int, int, int], ...]

    def moved(self, file: str) -> FiledTensor:
        """The same in a file of its own: the tensor, then each piece on a page of its own."""
        end, pieces = self.nbytes, []
        for _, nbytes, other in self.pieces:
            start = -(-end // _PAGE) * _PAGE
            pieces.append((start, nbytes, other))
            end = start + nbytes
        return FiledTensor(file, 0, self.nbytes, self.key, tuple(pieces))

    def places(self) -> Iterator[tuple[int, int]]:
        """The offset and size of the tensor, and of each piece."""
        yield self.offset, self.nbytes
        yield from ((offset, nbytes) for offset, nbytes, _ in self.pieces)

    def fields(self) -> Message:
        """The fields of the tensor that say so."""
        text = "".join(f"|{';'.join(map(str, piece))}" for piece in self.pieces)
        words = {"location": self.file, "offset": str(self.offset), "length": str(self.nbytes)}
        entries = (words | ({_PACKED: f"{self.key}{text}"} if self.key else {})).items()
        return {"external_data": [{"key": key, "value": value} for key, value in entries], "data_location": EXTERNAL}


def filed_tensor(tensor: Message) -> FiledTensor:
    """The places of a tensor whose data lies elsewhere. Raises `DelegateInvalidCompatibility`."""
    words = {entry.get("key"): entry.get("value", "") for entry in tensor.get("external_data", ())}
    form = _FORM.fullmatch(words.get(_PACKED, ""))
    offset, length = words.get("offset", "0"), words.get("length", "")
    known = words.keys() <= {"location", "offset", "length", _PACKED}
    if not known or not (offset.isdecimal() and length.isdecimal()) or (form is None and _PACKED in words):
        raise refused(f"where tensor {tensor.get('name', '')!r:.80} lies is told in other words than before")
    triples = (tuple(map(int, piece.split(";"))) for piece in form[2][1:].split("|")) if form else ()
    pieces = tuple((start, nbytes, other) for start, nbytes, other in triples)
    return FiledTensor(words.get("location", ""), int(offset), int(length), form[1] if form else "", pieces)


def in_file(tensor: Message, files: Mapping[str, int]) -> Message:
    """A tensor whose data lies elsewhere, written anew: all of it lies in one of `files`, of which these are the sizes.

    Raises `DelegateInvalidCompatibility`.
    """
    name, filed = tensor.get("name", ""), filed_tensor(tensor)
    size = files.get(filed.file, -1)
    if any(offset + nbytes > size for offset, nbytes in filed.places()):
        raise refused(f"tensor {name!r:.80} refers to a file, and is not one of its weights")
    if filed.nbytes != prod(tensor.get("dims", ())) * ITEM_SIZES[ELEMENT_TYPES[tensor["data_type"]]]:
        raise refused(f"tensor {name!r:.80} has another size in its file")
    kept = {field: value for field, value in tensor.items() if field in ("dims", "data_type", "name")}
    return kept | filed.fields()
