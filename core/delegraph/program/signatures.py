"""Files and keys -> signed files, and whether a signature holds. Needs `cryptography`, the extra `delegraph[sign]`.

A signature is Ed25519 (RFC 8032) of these bytes: "delegraph.signature", u8 1, u64 the content's bytes, little-endian,
SHA-256 of the content. It stands in the file's seal (`seal.py`), beside the public key that it can be checked with.
That key proves nothing by itself: a reader compares it with those that are trusted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delegraph.errors import AccessFailed, InvalidArgument, InvalidProgram, NotSupported, UntrustedFile
from delegraph.lazy_dataclass import replace
from delegraph.program.buffers import byte_view
from delegraph.program.files.atomic_file import write_atomically
from delegraph.program.files.checked_source import CheckedSource
from delegraph.program.files.header import IDENTIFIER, WEIGHTS_IDENTIFIER
from delegraph.program.files.seal import Seal, Signature, pack_seal, read_seal, sealed
from delegraph.program.files.segment_source import SegmentSource, segment_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["Key", "holds", "public_keys", "require_signature", "sign_file"]

Key = str | os.PathLike[str] | bytes
"""A key: the path of a PEM file, the bytes of one, or of a public key the 32 bytes themselves."""

_PREFIX: Final = b"delegraph.signature\x01"
_KEY_NBYTES: Final = 32
_READ_NBYTES: Final = 1 << 20


def sign_file(path: str | os.PathLike[str], key: Key) -> str:
    """Sign a `.pte` or `.ptd` with a private Ed25519 key, in place: the file is replaced whole, or left as it is.

    A signature that it has already is replaced. Returns the public key, in hex. Raises `InvalidProgram` for a file that
    is damaged or is neither, `InvalidArgument` for a key that is none, `AccessFailed` for one that cannot be read,
    `NotSupported` without `cryptography`, and `OSError`.
    """
    private = _private_key(key)
    data = memoryview(Path(path).read_bytes())
    if bytes(data[4:8]) not in (IDENTIFIER, WEIGHTS_IDENTIFIER):
        raise InvalidProgram(f"{os.fspath(path)}: only a .pte or a .ptd can be signed; sign it before it is bundled")
    source = segment_source(data)
    seal = read_seal(source, InvalidProgram)
    if seal is None:  # as ExecuTorch writes files
        seal = read_seal(segment_source(b"".join(sealed([data]))), InvalidProgram)
        assert seal is not None
    CheckedSource(source, seal, True, InvalidProgram).check_all()
    content = data[: seal.content_nbytes]
    public = private.public_key().public_bytes_raw()
    signature = Signature(public, private.sign(_message(segment_source(content))))
    write_atomically(path, [content, pack_seal(replace(seal, signature=signature))])
    return public.hex()


def require_signature(content: SegmentSource, seal: Seal | None, keys: Sequence[bytes]) -> None:
    """Raise `UntrustedFile` unless `content` was signed with one of the public `keys`, of 32 bytes each."""
    signature = None if seal is None else seal.signature
    if signature is None:
        raise UntrustedFile("the file is not signed, and only signed ones are trusted; `delegraph sign` signs one")
    if signature.public_key not in keys:
        raise UntrustedFile(
            f"the file is signed with the key {signature.public_key.hex()}, which is none of the {len(keys)} trusted;"
            " get the file from whom you trust, or add that key if it is theirs"
        )
    if not holds(content, signature):
        raise UntrustedFile(
            "the file was changed after it was signed: its signature is not one of these bytes; get it again from whom"
            " you trust"
        )


def holds(content: SegmentSource, signature: Signature) -> bool:
    """Whether the signature is one of `content`, made with its key. Raises `NotSupported` without `cryptography`."""
    with _cryptography():
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(signature.public_key).verify(signature.value, _message(content))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_keys(keys: Iterable[Key]) -> tuple[bytes, ...]:
    """The public keys, 32 bytes each. Raises `InvalidArgument` for none, or one that is no public Ed25519 key,
    `AccessFailed` for one that cannot be read, and `NotSupported` without `cryptography`."""
    read = tuple(map(_public_key, keys))
    if not read:
        raise InvalidArgument("trusted_keys is empty, so no file could be loaded; give a public key, or leave it out")
    return read


def _public_key(key: Key) -> bytes:
    if isinstance(key, bytes) and len(key) == _KEY_NBYTES:
        return key
    with _cryptography():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    try:
        loaded = load_pem_public_key(_pem(key))
    except ValueError as error:
        raise _no_key(key, "public") from error
    if not isinstance(loaded, Ed25519PublicKey):
        raise _no_key(key, "public")
    return loaded.public_bytes_raw()


def _private_key(key: Key) -> Ed25519PrivateKey:
    with _cryptography():
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    try:
        loaded = load_pem_private_key(_pem(key), password=None)
    except TypeError as error:  # it wants a password
        raise InvalidArgument(
            f"{_name(key)} is encrypted; decrypt it first: `openssl pkey -in key.pem -out plain.pem`"
        ) from error
    except ValueError as error:
        raise _no_key(key, "private") from error
    if not isinstance(loaded, Ed25519PrivateKey):
        raise _no_key(key, "private")
    return loaded


def _pem(key: Key) -> bytes:
    if isinstance(key, bytes):
        return key
    try:
        return Path(key).read_bytes()
    except OSError as error:
        raise AccessFailed(f"{os.fspath(key)}: this key cannot be read: {error.strerror or error}") from error


def _no_key(key: Key, kind: str) -> InvalidArgument:
    make = {
        "private": "`openssl genpkey -algorithm ed25519 -out key.pem` makes one",
        "public": "`openssl pkey -in key.pem -pubout -out public.pem` writes that of a private key",
    }
    return InvalidArgument(f"{_name(key)} is no {kind} Ed25519 key in PEM; {make[kind]}")


def _name(key: Key) -> str:
    return "the key" if isinstance(key, bytes) else os.fspath(key)


def _message(content: SegmentSource) -> bytes:
    import hashlib

    size, summed = content.size(), hashlib.sha256()
    for start in range(0, size, _READ_NBYTES):
        summed.update(byte_view(content.load(start, min(_READ_NBYTES, size - start))))
    return _PREFIX + struct.pack("<Q", size) + summed.digest()


@contextmanager
def _cryptography() -> Iterator[None]:
    """Around its imports: without it, an error that says what to install."""
    try:
        yield
    except ImportError as error:
        raise NotSupported(
            "signatures need cryptography, which is not installed: `pip install 'cryptography>=42'`"
        ) from error
