"""A blob -> others like it: bits, bytes and lengths changed, also behind the checksums, which are made right again.

A stranger makes his checksums right. So where a blob is a `delegraph.interfaces.BlobFormat`, its header, or one of its
sections, is changed and sealed anew; any other is changed as it is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from delegraph.errors import DelegraphError
from delegraph.interfaces import BlobFormat

__all__ = ["Change", "changed_bytes", "mutated"]

Change: TypeAlias = Callable[[bytes, random.Random], bytes]
"""A change: the bytes of a section and a source of numbers -> the changed bytes."""

_MAGIC: Final = b"DLGBLOB\x01"
_PREFIX: Final = 16
_NUMBERS: Final = (-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
_SIZES: Final = (1, 2, 4, 8, 16, 64)


def mutated(blob: bytes, draw: random.Random, changes: Mapping[str, Change] = MappingProxyType({})) -> bytes:
    """A blob in which something is changed, a section by the change of its name if there is one."""
    if blob[: len(_MAGIC)] != _MAGIC or draw.random() < _AS_IT_IS:
        return changed_bytes(blob, draw)
    try:
        size = int.from_bytes(blob[8:12], "little")
        head = json.loads(blob[_PREFIX : _PREFIX + size])
        form = BlobFormat(head["backend"], "", (head["version"],))
        content = form.unpack(blob)
    except (DelegraphError, ValueError, KeyError, TypeError):
        return changed_bytes(blob, draw)
    header, sections = content.header, {name: bytes(content.view(name)) for name in content.names}
    filled = [name for name, section in sections.items() if section]
    if not filled or draw.random() < _IN_HEADER:
        _change_somewhere(header, draw)
    else:
        name = draw.choice(filled)
        sections[name] = changes.get(name, changed_bytes)(sections[name], draw)
    return form.pack(header, sections)


_AS_IT_IS: Final = 0.1
_IN_HEADER: Final = 0.3


def changed_bytes(data: bytes, draw: random.Random) -> bytes:
    """Other bytes: a bit, a number of some bytes, a piece that is missing, doubled or moved; a digit, in a text."""
    if not data:
        return b"\0"
    at, size = draw.randrange(len(data)), draw.choice(_SIZES)
    piece = data[at : at + size]
    digits = [place for place, byte in enumerate(data) if 0x30 <= byte <= 0x39] if draw.random() < _IN_HEADER else []
    if digits:
        at = draw.choice(digits)
        return data[:at] + str(draw.choice(_NUMBERS)).encode() + data[at + 1 :]
    return draw.choice(
        (
            data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :],
            data[:at] + (draw.choice(_NUMBERS) % 2 ** (8 * size)).to_bytes(size, "little") + data[at + size :],
            data[:at] + data[at + size :],
            data[:at] + piece + data[at:],
            data[:at],
            data[: at // 2] + piece + data[at // 2 : at] + data[at + size :],
        )
    )


def _change_somewhere(header: Any, draw: random.Random) -> None:
    """Change a value of a header, in place; nothing where it has none."""
    places: list[tuple[Any, Any]] = []
    todo = [header]
    while todo:
        node = todo.pop()
        for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            places.append((node, key))
            todo.append(value)
    if places:
        node, key = draw.choice(places)
        node[key] = _other(node[key], draw)


def _other(value: Any, draw: random.Random) -> Any:
    if isinstance(value, list):
        return draw.choice(([], value[:-1], value * 2, value[::-1]))
    if isinstance(value, str):
        return draw.choice(("", value + "x", value[:-1], "/etc/hostname", "\0", "\u202e", "a" * 300))
    return draw.choice((*_NUMBERS, None, True, 0.5, "x"))
