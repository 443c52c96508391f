"""What a user says of a model <-> bytes: what is written is read again, and a stranger's is refused in words."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from delegraph.errors import InvalidProgram
from delegraph.program.schema import NamedData, Program
from delegraph.program.user_metadata import (
    MOST_NBYTES,
    USER_METADATA_KEY,
    metadata_fault,
    metadata_text,
    read_user_metadata,
    user_metadata_of,
    write_user_metadata,
)

METADATA = {"author": "Ada Þ", "labels": ["cat", "dog"], "top1": 71.9, "classes": 2, "public": True}
LONGEST = {"text": "x" * (MOST_NBYTES - len(write_user_metadata({"text": ""})))}


def test_what_is_written_is_read() -> None:
    assert read_user_metadata(write_user_metadata(METADATA)) == {**METADATA, "labels": ("cat", "dog")}
    assert read_user_metadata(write_user_metadata(LONGEST)) == LONGEST
    assert user_metadata_of(Program(())) == {}


def test_a_program_carries_it() -> None:
    named = {USER_METADATA_KEY: NamedData(write_user_metadata({"author": "Ada"}))}
    assert user_metadata_of(Program((), named_data=MappingProxyType(named))) == {"author": "Ada"}


def test_a_later_version_is_not_read() -> None:
    assert read_user_metadata(b'{"version": 2, "metadata": "of another form"}') == {}


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (["Ada"], "metadata is list; it is a mapping of names: {'author': 'Ada'}"),
        ({1: "Ada"}, "metadata has an entry 1; a name is a text"),
        ({"": "Ada"}, "metadata has an entry ''"),
        ({"author": None}, "metadata['author'] is or has a NoneType; a value is a text"),
        ({"labels": {"0": "cat"}}, "metadata['labels'] is or has a dict"),
        ({"labels": ["cat", ["dog"]]}, "metadata['labels'] is or has a list"),
        ({"top1": float("nan")}, "metadata['top1'] is or has nan; a value is a text, a finite number"),
        ({"text": LONGEST["text"] + "x"}, "metadata has 1,048,577 bytes, and a program takes 1,048,576"),
    ],
)
def test_what_no_program_takes(metadata: Any, why: str) -> None:
    assert metadata_fault(metadata).startswith(why)


@pytest.mark.parametrize(
    "data",
    [
        *(b"{", b"[]", b"{}", b"[" * 100_000, b'{"version": "1", "metadata": {}}'),
        *(b'{"version": 1, "metadata": []}', b'{"version": 1, "metadata": {"a": null}}'),
        b'{"version": 1, "metadata": {"a": NaN}}',
        write_user_metadata({"text": LONGEST["text"] + "x"}),
    ],
    ids=lambda data: data[:40].decode(),
)
def test_what_is_damaged_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidProgram, match=r"'delegraph\.user_metadata' is damaged"):
        read_user_metadata(data)


def test_long_values_are_cut_for_people() -> None:
    assert metadata_text(("cat", "dog")) == "cat, dog" and metadata_text(71.9) == "71.9"
    assert metadata_text(("cat", "dog", "owl"), 5) == "cat, … (3 values)"
    assert metadata_text("a text", 3) == "a t… (6 characters)"
