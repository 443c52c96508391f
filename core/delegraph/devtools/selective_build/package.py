"""Contents -> the bytes of a wheel or a zipapp: the same for the same contents, whenever and wherever they are made.

Wheels: https://packaging.python.org/specifications/binary-distribution-format; zipapps: Python's `zipapp`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Final

from delegraph.devtools.selective_build.bytecode import PREAMBLE, compiled
from delegraph.devtools.selective_build.contents import PACKAGE, Contents
from delegraph.errors import InvalidArgument

__all__ = ["packed", "wheel", "wheel_identity", "wheel_name", "zipapp"]

_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip file can tell."""

_INITIAL: Final = f"{PACKAGE}/__init__.py"

_SHEBANG: Final = b"#!/usr/bin/env python3\n"


def wheel_identity(file_name: str, version: str) -> tuple[str, str]:
    """Name and version of the wheel called `file_name`: `digits-1.0-py3-none-any.whl`, or `digits.whl` with `version`.

    Raises `InvalidArgument` for what is no name of a distribution.
    """
    stem = file_name.removesuffix(".whl")
    parts = stem.split("-")
    name, version = (parts[0], parts[1]) if len(parts) == 5 else (stem, version)
    if not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", name, re.ASCII) or not re.match(r"\d", version):
        raise InvalidArgument(f"{file_name!r} is no wheel's name; write digits.whl or digits-1.0-py3-none-any.whl")
    return name, version


def wheel_name(identity: tuple[str, str], tag: str) -> str:
    """The file name that pip expects."""
    name, version = identity
    return f"{_escaped(name)}-{_escaped(version)}-{tag}.whl"


def wheel(contents: Contents, identity: tuple[str, str]) -> bytes:
    """An installable wheel whose entry points are the plug-ins in it."""
    info = "-".join(map(_escaped, identity)) + ".dist-info"
    files = {
        **contents.files,
        **{f"{info}/licenses/{name}": text for name, text in sorted(contents.licences.items())},
        f"{info}/METADATA": _metadata(contents, identity).encode(),
        f"{info}/WHEEL": _wheel_text(contents.tag).encode(),
        f"{info}/entry_points.txt": _entry_points(contents).encode(),
    }
    return packed(files, info)


def packed(files: Mapping[str, bytes], info: str) -> bytes:
    """A wheel of its files, whose metadata are in the folder `info`: with its record of them."""
    record = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items()]
    return _zip({**files, f"{info}/RECORD": "".join([*record, f"{info}/RECORD,,\n"]).encode()})


def zipapp(contents: Contents, versions: Sequence[str] = ()) -> bytes:
    """A file that Python runs, with bytecode for these versions of it. Raises `InvalidArgument` for native code, which
    no zip can be run from, and as `compiled`."""
    if contents.tag != "py3-none-any":
        raise InvalidArgument(f"there is native code for {contents.tag} among the files; make a wheel (-o NAME.whl)")
    files = dict(contents.files)
    for version in dict.fromkeys(versions):
        files |= compiled(contents.files, version)
    if versions:
        files[_INITIAL] = PREAMBLE.encode() + files[_INITIAL]
    licences = {f"licenses/{name}": text for name, text in sorted(contents.licences.items())}
    return _zip({"__main__.py": contents.files[f"{PACKAGE}/__main__.py"], **files, **licences}, _SHEBANG)


def _zip(files: Mapping[str, bytes], start: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    buffer.write(start)
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.compress_type = zipfile.ZIP_STORED if path.endswith(".pyc") else zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _metadata(contents: Contents, identity: tuple[str, str]) -> str:
    name, version = identity
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        "Summary: A selective build of Delegraph: its runtime with the kernels and backends that certain programs need",
        *(f"Requires-Python: {versions}" for versions in [",".join(contents.requires_python)] if versions),
        *(f"Requires-Dist: {requirement}" for requirement in contents.requirements),
    ]
    return "\n".join(lines) + "\n"


def _wheel_text(tag: str) -> str:
    pure = "true" if tag.endswith("-none-any") else "false"
    return f"Wheel-Version: 1.0\nGenerator: delegraph select\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"


def _entry_points(contents: Contents) -> str:
    groups: dict[str, list[str]] = {}
    for offer in contents.offers:
        groups.setdefault(offer.group, []).append(f"{offer.name} = {offer.value}\n")
    return "\n".join(f"[{group}]\n{''.join(lines)}" for group, lines in sorted(groups.items()))


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _escaped(text: str) -> str:
    return re.sub(r"[-_]+", "_", text)
