"""`--integrity` and `--trusted-key`, as commands take them; and what `delegraph inspect` says of a file's seal."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delegraph.errors import InvalidProgram, NotSupported

if TYPE_CHECKING:
    from delegraph.program.files.seal import Signature
    from delegraph.program.files.segment_source import SegmentSource

__all__ = ["SealSummary", "add_arguments", "summarize_seal", "text"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--integrity`, None or a mode, and `--trusted-key`, a list of paths or None."""
    parser.add_argument(
        "--integrity",
        choices=("full", "lazy", "none"),
        help="when the files' checksums are checked: all at load, what is read at load and the rest before the first"
        " run (the default), or never",
    )
    parser.add_argument(
        "--trusted-key",
        action="append",
        metavar="public.pem",
        help="load only files that were signed with this key (`delegraph sign`), or another one that is given likewise",
    )


@dataclass(frozen=True, slots=True)
class SealSummary:
    """A file's checksums and signature. `damage` says what is wrong with its bytes, `signed_by` is a public key in hex;
    `signature` is "holds", "does not hold", or "was not checked: …". None: nothing, or no signature."""

    checksum: str
    chunk_nbytes: int
    damage: str | None
    signed_by: str | None
    signature: str | None


def summarize_seal(source: SegmentSource) -> SealSummary | None:
    """The seal of a file, which is checked in full; None if it has none. Raises `InvalidProgram` for a damaged seal."""
    from delegraph.program.files.checked_source import CheckedSource
    from delegraph.program.files.seal import read_seal

    seal = read_seal(source, InvalidProgram)
    if seal is None:
        return None
    content, damage = CheckedSource(source, seal, True, InvalidProgram), None
    try:
        content.check_all()
    except InvalidProgram as error:
        damage = str(error)
    signature = seal.signature
    return SealSummary(
        checksum="CRC-32",
        chunk_nbytes=seal.chunk_nbytes,
        damage=damage,
        signed_by=None if signature is None else signature.public_key.hex(),
        signature=None if signature is None else _verdict(content, signature, damage),
    )


def _verdict(content: SegmentSource, signature: Signature, damage: str | None) -> str:
    from delegraph.program.signatures import holds

    try:
        return "holds" if damage is None and holds(content, signature) else "does not hold"
    except NotSupported as error:
        return f"was not checked: {error}"


def text(seal: SealSummary | None) -> str:
    """A line for people."""
    if seal is None:
        return "integrity: no checksums and no signature; damage is not found (ExecuTorch's files have none)"
    checked = "all right" if seal.damage is None else seal.damage
    signed = (
        "not signed" if seal.signed_by is None else f"signed with key {seal.signed_by}; the signature {seal.signature}"
    )
    return f"integrity: {seal.checksum} of each {seal.chunk_nbytes:,} bytes, {checked}; {signed}"
