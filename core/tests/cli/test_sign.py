"""`delegraph sign`, `--trusted-key` and `--integrity`, and what `inspect` says of checksums and signatures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from delegraph.devtools import BundledProgram, write_bundled_program
from delegraph.program import ExternalData, FlatTensor, serialize_flat_tensor, serialize_program, sign_file
from delegraph.program.files.seal import sealed

from .conftest import program

Told = Callable[..., Any]
Refused = Callable[..., str]

NONE = "integrity: no checksums and no signature; damage is not found (ExecuTorch's files have none)"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """The paths of a private key and its public one."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(private), str(public)


PUBLIC = Ed25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw().hex()


@pytest.fixture
def pte(tmp_path: Path) -> str:
    (tmp_path / "m.pte").write_bytes(b"".join(sealed([serialize_program(program())])))
    return str(tmp_path / "m.pte")


@pytest.fixture
def ptd(tmp_path: Path) -> str:
    content = serialize_flat_tensor(FlatTensor({"w": ExternalData(bytes(100))}))
    (tmp_path / "m.ptd").write_bytes(b"".join(sealed([content])))
    return str(tmp_path / "m.ptd")


def damage(path: str, at: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)


def test_signing_and_trusting(pte: str, ptd: str, keys: tuple[str, str], told: Told, refused: Refused) -> None:
    private, public = keys
    for integrity in ("full", "lazy", "none"):
        told("run", pte, "--integrity", integrity)
    message = refused("run", pte, "--trusted-key", public, code=1)
    assert message == (
        f"delegraph run: {pte}: the file is not signed, and only signed ones are trusted; `delegraph sign` signs one\n"
    )
    lines = told("sign", pte, ptd, "--key", private).splitlines()
    assert lines == [f"{path}: signed with key {PUBLIC}" for path in (pte, ptd)]
    told("run", pte, "--trusted-key", public)


def test_a_file_that_cannot_be_signed_stays_as_it_is(pte: str, keys: tuple[str, str], refused: Refused) -> None:
    before = Path(pte).read_bytes()
    assert "no private Ed25519 key" in refused("sign", pte, "--key", keys[1], code=1)
    assert "--key" in refused("sign", pte, code=2)
    assert Path(pte).read_bytes() == before


def test_keys_and_a_bundled_program(bpte: str, keys: tuple[str, str], refused: Refused) -> None:
    assert "--trusted-key has no use with" in refused("run", bpte, "--trusted-key", keys[1], code=2)
    assert "--integrity has no use with" in refused("run", bpte, "--integrity", "full", code=2)


@pytest.fixture
def bpte(tmp_path: Path) -> str:
    write_bundled_program(BundledProgram(serialize_program(program()), []), tmp_path / "m.bpte")
    return str(tmp_path / "m.bpte")


@pytest.mark.parametrize("kind", ["pte", "ptd"])
def test_inspect_tells(kind: str, request: pytest.FixtureRequest, keys: tuple[str, str], told: Told) -> None:
    path: str = request.getfixturevalue(kind)
    checked = "integrity: CRC-32 of each 65,536 bytes, "
    unsigned = {"checksum": "CRC-32", "chunk_nbytes": 65536, "damage": None, "signed_by": None, "signature": None}

    assert told("inspect", path).splitlines()[-1] == f"{checked}all right; not signed"
    assert told("inspect", path, "--json")["integrity"] == unsigned
    sign_file(path, keys[0])
    assert f"{checked}all right; signed with key {PUBLIC}; the signature holds" in told("inspect", path)
    assert told("inspect", path, "--json")["integrity"] == {**unsigned, "signed_by": PUBLIC, "signature": "holds"}
    content_nbytes = int.from_bytes(Path(path).read_bytes()[-28:-20], "little")
    damage(path, content_nbytes - 1)
    text = told("inspect", path)
    assert f"{checked}the file is damaged: the checksum of its bytes 0 to {content_nbytes:,} is another" in text
    assert f"signed with key {PUBLIC}; the signature does not hold" in text
    Path(path).write_bytes(Path(path).read_bytes()[:content_nbytes])
    assert NONE in told("inspect", path).splitlines()
    assert told("inspect", path, "--json")["integrity"] is None


def test_inspect_without_cryptography(
    pte: str, keys: tuple[str, str], told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_file(pte, keys[0])
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert f"{PUBLIC}; the signature was not checked: signatures need cryptography" in told("inspect", pte)
