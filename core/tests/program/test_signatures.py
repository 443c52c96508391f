"""Files signed with Ed25519, and keys."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from delegraph.errors import AccessFailed, InvalidArgument, InvalidProgram, NotSupported, UntrustedFile
from delegraph.program import ExternalData, FlatTensor, serialize_flat_tensor, sign_file
from delegraph.program.files.seal import Seal, read_seal, sealed
from delegraph.program.files.segment_source import segment_source
from delegraph.program.signatures import public_keys, require_signature

PLAIN = NoEncryption()
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW = KEY.public_key().public_bytes_raw()
CONTENT = serialize_flat_tensor(FlatTensor({"w": ExternalData(bytes(100))}))


def private_pem(key: object = KEY, encryption: KeySerializationEncryption = PLAIN) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)  # type: ignore[attr-defined]
    return pem


def public_pem(key: object = KEY) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return pem


OTHER_KIND = generate_private_key(SECP256R1())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.ptd").write_bytes(b"".join(sealed([CONTENT])))
    return tmp_path / "m.ptd"


def content_and_seal(data: bytes) -> tuple[bytes, Seal]:
    seal = read_seal(segment_source(data), InvalidProgram)
    assert seal is not None
    return data[: seal.content_nbytes], seal


def require(data: bytes, *keys: bytes) -> None:
    content, seal = content_and_seal(data)
    require_signature(segment_source(content), seal, keys)


# ---- signing ---------------------------------------------------------------------------------------


def test_a_signed_file_has_the_same_content(path: Path) -> None:
    assert sign_file(path, private_pem()) == RAW.hex()
    content, seal = content_and_seal(path.read_bytes())
    assert content == CONTENT and seal.signature is not None and seal.signature.public_key == RAW
    require(path.read_bytes(), bytes(32), RAW)


def test_a_key_may_lie_in_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(private_pem())
    assert sign_file(path, tmp_path / "key.pem") == RAW.hex()


def test_signing_again_replaces_the_signature(path: Path) -> None:
    sign_file(path, private_pem(Ed25519PrivateKey.generate()))
    size = path.stat().st_size
    sign_file(path, private_pem())
    assert path.stat().st_size == size
    require(path.read_bytes(), RAW)


def test_a_file_without_checksums_gets_them(path: Path) -> None:
    """As ExecuTorch writes files."""
    path.write_bytes(CONTENT)
    sign_file(path, private_pem())
    require(path.read_bytes(), RAW)


def test_a_damaged_file_is_not_signed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        sign_file(path, private_pem())
    assert path.read_bytes() == data


def test_another_file_is_not_signed(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"something else")
    with pytest.raises(InvalidProgram, match=r"notes: only a \.pte or a \.ptd can be signed; sign it before"):
        sign_file(tmp_path / "notes", private_pem())


# ---- trusting --------------------------------------------------------------------------------------


def test_a_file_that_is_not_signed(path: Path) -> None:
    with pytest.raises(
        UntrustedFile, match=r"the file is not signed, and only signed ones are trusted; `delegraph sign`"
    ):
        require(path.read_bytes(), RAW)
    with pytest.raises(UntrustedFile, match="the file is not signed"):
        require_signature(segment_source(CONTENT), None, [RAW])


def test_a_file_that_another_key_signed(path: Path) -> None:
    sign_file(path, private_pem())
    with pytest.raises(UntrustedFile, match=rf"signed with the key {RAW.hex()}, which is none of the 1 trusted; get"):
        require(path.read_bytes(), bytes(32))


def test_a_file_that_was_changed_and_given_new_checksums(path: Path) -> None:
    sign_file(path, private_pem())
    content, seal = content_and_seal(path.read_bytes())
    for changed in (bytes([content[0] ^ 1]) + content[1:], content + b"\0", content[:-1]):
        with pytest.raises(UntrustedFile, match="changed after it was signed: its signature is not one of these bytes"):
            require_signature(segment_source(changed), seal, [RAW])


# ---- keys ------------------------------------------------------------------------------------------


def test_public_keys_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "public.pem").write_bytes(public_pem())
    assert public_keys([tmp_path / "public.pem", str(tmp_path / "public.pem"), public_pem(), RAW]) == (RAW,) * 4


@pytest.mark.parametrize("key", [b"no PEM", private_pem(), public_pem(OTHER_KIND)], ids=["text", "private", "other"])
def test_what_is_no_public_key(key: bytes) -> None:
    with pytest.raises(
        InvalidArgument, match=r"the key is no public Ed25519 key in PEM; `openssl pkey .*` writes that"
    ):
        public_keys([key])


@pytest.mark.parametrize("key", [b"no PEM", public_pem(), private_pem(OTHER_KIND)], ids=["text", "public", "other"])
def test_what_is_no_private_key(path: Path, key: bytes) -> None:
    with pytest.raises(
        InvalidArgument, match=r"the key is no private Ed25519 key in PEM; `openssl genpkey .*` makes one"
    ):
        sign_file(path, key)


def test_an_encrypted_key(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="the key is encrypted; decrypt it first: `openssl pkey"):
        sign_file(path, private_pem(KEY, BestAvailableEncryption(b"secret")))


def test_a_key_that_is_not_there(path: Path, tmp_path: Path) -> None:
    with pytest.raises(AccessFailed, match=r"key\.pem: this key cannot be read: No such file"):
        sign_file(path, tmp_path / "key.pem")


def test_no_keys() -> None:
    with pytest.raises(InvalidArgument, match="trusted_keys is empty, so no file could be loaded; give a public key"):
        public_keys([])


def test_without_cryptography(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_file(path, private_pem())
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    told = r"signatures need cryptography, which is not installed: `pip install 'cryptography>=42'`"
    with pytest.raises(NotSupported, match=told):
        sign_file(path, b"")
    with pytest.raises(NotSupported, match=told):
        public_keys([b"PEM"])
    with pytest.raises(NotSupported, match=told):
        require(path.read_bytes(), RAW)
