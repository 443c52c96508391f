"""A program's delegates with graphs that a stranger has changed: each is refused, or runs.

    python -m tests.mutated_graphs FILE.pte FIRST COUNT

The input is in FILE.npy. Writes FILE.mutated.pte before it is loaded, for whoever finds that the process has died, and
tells at the end how many ran.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

import delegraph
from delegraph.errors import DelegraphError
from delegraph.program import deserialize_program, write_program
from delegraph_cpu.graphs.messages import MESSAGES, Message
from delegraph_cpu.graphs.wire import decoded, encoded
from delegraph_testkit.mutations import Change, changed_bytes, mutated

__all__ = ["CHANGES"]

NUMBERS: Final = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 7, 16, 2**31 - 1, 2**31, 2**62)
SECONDS: Final = 5.0
Place: TypeAlias = "tuple[Any, Any, str]"
"""A message or list, the field or index in it, and the kind of what stands there."""


def _onnx(graph: bytes, draw: random.Random) -> bytes:
    """A graph whose messages say something else, in the form of protobuf that is read."""
    if draw.random() < _BYTES:
        return changed_bytes(graph, draw)
    model = _copy(decoded(graph))
    for _ in range(draw.choice((1, 1, 2))):
        places = list(_places(model, "ModelProto"))
        holder, key, kind = draw.choice(places)
        holder[key] = _other(holder[key], kind, draw, places)
    return b"".join(encoded(model))


_BYTES: Final = 0.3


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _places(message: Message, kind: str) -> Iterator[Place]:
    """All fields of a message and of those in it, and all items of lists."""
    for field in MESSAGES[kind]:
        value = message.get(field.name)
        if value is None:
            continue
        yield message, field.name, f"{kind}.{field.name}" if field.repeated else field.message or field.content.name
        for index, item in enumerate(value) if field.repeated else [(None, value)]:
            if field.repeated:
                yield value, index, field.message or field.content.name
            if field.message:
                yield from _places(item, field.message)


def _other(value: Any, kind: str, draw: random.Random, places: list[Place]) -> Any:
    """Another value of the kind: a number, a list without an item, or what stands elsewhere."""
    if isinstance(value, int):
        return draw.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, list) and value:
        return draw.choice(([], value[:-1], value[1:], value[::-1], [*value, value[0]]))
    alike = [holder[key] for holder, key, other in places if other == kind and holder[key] != value]
    return _copy(draw.choice(alike)) if alike else value


def _xml(text: bytes, draw: random.Random) -> bytes:
    """An IR in which a value is another's, or a number, or an element is missing or there twice."""
    if draw.random() < _BYTES:
        return changed_bytes(text, draw)
    values = list(re.finditer(rb'"[^"]*"', text))
    elements = list(re.finditer(rb"(?s)<(port|data|edge|layer)\b[^>]*(?:/>|>.*?</\1>)", text))
    if draw.random() < _BYTES:
        element = draw.choice(elements)
        return text[: element.start()] + draw.choice((b"", element[0] * 2)) + text[element.end() :]
    value, other = draw.choice(values), draw.choice(values)[0]
    other = draw.choice((other, b'"%d"' % draw.choice(NUMBERS)))
    return text[: value.start()] + other + text[value.end() :]


CHANGES: Final[dict[str, Change]] = {"graph": _onnx, "xml": _xml}
"""What is done to a section of this name."""


def main(file: Path, first: int, count: int) -> None:
    records, ran = deserialize_program(file.read_bytes()), 0
    changed, x = file.with_suffix(".mutated.pte"), np.load(file.with_suffix(".npy"))
    for seed in range(first, first + count):
        draw = random.Random(seed)
        blobs = tuple(mutated(bytes(blob), draw, CHANGES) for blob in records.delegate_data)
        write_program(replace(records, delegate_data=blobs), changed)
        try:
            ran += _runs(changed, x)
        except DelegraphError:
            pass
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
    print(ran)


def _runs(file: Path, x: Any) -> bool:
    model = delegraph.load(file, limits=delegraph.Limits(seconds=SECONDS))
    model["forward"].method.execute([x])
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
