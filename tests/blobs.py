"""A blob in a `BlobFormat` -> the same with other bytes in its sections or another number in its header, and the
checksums that it then has to have: what a stranger writes, where damage is found before it is looked at."""

from __future__ import annotations

import json
import random
import re

from delegraph.interfaces import BlobFormat, Buffer

__all__ = ["changed"]

NUMBERS = (0, 1, 2, 7, 255, 2**31, 2**62)


def changed(form: BlobFormat, blob: Buffer, rng: random.Random) -> bytes:
    """One to four changes."""
    content = form.unpack(blob)
    header, sections = content.header, {name: bytearray(content.view(name)) for name in content.names}
    for _ in range(rng.randint(1, 4)):
        section = rng.choice([*filter(None, sections.values()), None])
        if section is None:
            header = _with_another_number(header, rng)
        else:
            section[rng.randrange(len(section))] = rng.randrange(256)
    return form.pack(header, sections)


def _with_another_number(header: object, rng: random.Random) -> object:
    text = json.dumps(header)
    places = [match.span() for match in re.finditer(r"(?<=[\[ ])\d+(?=[,\]}])", text)]
    if not places:
        return header
    begin, end = rng.choice(places)
    return json.loads(text[:begin] + str(rng.choice(NUMBERS)) + text[end:])
