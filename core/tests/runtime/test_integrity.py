"""Damaged files and files of strangers: found at load, before the first run, or never, as the caller asks."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from delegraph.errors import (
    AccessFailed,
    DelegraphError,
    InvalidArgument,
    InvalidExternalData,
    InvalidProgram,
    InvalidType,
    UntrustedFile,
)
from delegraph.interfaces import BackendInterface, KernelLibrary
from delegraph.program import ExternalData, FlatTensor, serialize_flat_tensor, serialize_program, sign_file
from delegraph.program.files.seal import CHUNK_NBYTES, sealed
from delegraph.program.flat_tensor import TensorLayout
from delegraph.program.schema import NamedData, ScalarType
from delegraph.runtime import FileDataLoader, MmapDataLoader, Program, Runtime, State, load
from delegraph.runtime.data_loader import Source
from delegraph.runtime.resolution.environment import Environment

from .conftest import PlanBuilder

SIZE = CHUNK_NBYTES  # elements of float32: four chunks
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PEM = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
PUBLIC = PRIVATE.public_key().public_bytes_raw()
X = np.zeros(SIZE, np.float32)
WEIGHTS = np.arange(SIZE, dtype=np.float32)


def add_constant(build: PlanBuilder, size: int = SIZE) -> bytes:
    """The file of `x + weights`."""
    x, weights = build.tensor(size), build.constant(WEIGHTS[:size])
    plan = build.plan([x], [build.call("aten::add.out", x, weights, build.int(1), build.tensor(size))])
    return b"".join(sealed([serialize_program(build.program(plan))]))


def add_external(build: PlanBuilder) -> tuple[bytes, bytes]:
    """The files of `x + weights`, where the weights are external."""
    x, weights = build.tensor(SIZE), build.external("w", SIZE)
    plan = build.plan([x], [build.call("aten::add.out", x, weights, build.int(1), build.tensor(SIZE))])
    entry = ExternalData(WEIGHTS.tobytes(), TensorLayout(ScalarType.FLOAT, (SIZE,), (0,)))
    content = serialize_flat_tensor(FlatTensor({"w": entry}))
    return b"".join(sealed([serialize_program(build.program(plan))])), b"".join(sealed([content]))


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def in_weights(data: bytes) -> bytes:
    """`data` with a changed bit in the weights, three chunks into them."""
    return flipped(data, 8 * (data.index(WEIGHTS[: 2 * CHUNK_NBYTES // 4].tobytes()) + 3 * CHUNK_NBYTES))


def mapped(data: bytes, path: Path) -> Source:
    (path / "m.pte").write_bytes(data)
    return path / "m.pte"


def read(data: bytes, path: Path) -> Source:
    return FileDataLoader(mapped(data, path))  # type: ignore[arg-type]


SOURCES: dict[str, Callable[[bytes, Path], Source]] = {
    "mapped": mapped,
    "in memory": lambda data, path: data,
    "read": read,
}
IN_PLACE = ("mapped", "in memory")


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], Source]:
    return lambda data: SOURCES[request.param](data, tmp_path)


# ---- the three settings ----------------------------------------------------------------------------


@pytest.mark.parametrize("integrity", ["full", "lazy", "none"])
def test_a_sound_file_runs(build: PlanBuilder, kernels: Any, source: Any, integrity: Any) -> None:
    model = load(source(add_constant(build)), kernels=[kernels], integrity=integrity)
    np.testing.assert_array_equal(model(X)[0], WEIGHTS)


def test_in_full_damage_is_found_at_load(build: PlanBuilder, kernels: Any, source: Any) -> None:
    with pytest.raises(InvalidProgram, match="the file is damaged: the checksum of its bytes"):
        load(source(in_weights(add_constant(build))), kernels=[kernels], integrity="full")


@pytest.mark.parametrize("where", IN_PLACE)
def test_lazily_large_data_are_checked_before_the_first_run(
    build: PlanBuilder, kernels: Any, tmp_path: Path, where: str
) -> None:
    model = load(SOURCES[where](in_weights(add_constant(build)), tmp_path), kernels=[kernels])
    for _ in range(2):
        with pytest.raises(InvalidProgram, match=r"(m\.pte: )?the file is damaged: the checksum of its bytes") as error:
            model(X)
        assert ("m.pte: the file" in str(error.value)) is (where == "mapped")


def test_lazily_data_that_are_read_are_checked_then(build: PlanBuilder, kernels: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        load(read(in_weights(add_constant(build)), tmp_path), kernels=[kernels])


def test_lazily_small_data_are_checked_at_load(build: PlanBuilder, kernels: Any, source: Any) -> None:
    data = add_constant(build, size=100)
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        load(source(flipped(data, 8 * data.index(WEIGHTS[:100].tobytes()) + 100)), kernels=[kernels])


def test_without_integrity_nothing_is_checked(build: PlanBuilder, kernels: Any, source: Any) -> None:
    model = load(source(in_weights(add_constant(build))), kernels=[kernels], integrity="none")
    assert np.count_nonzero(model(X)[0] != WEIGHTS) == 1


def test_a_method_is_kept_from_its_own_data_alone(kernels: Any) -> None:
    """Two methods with a large constant each, of which one is damaged: the other method runs."""
    first, second = PlanBuilder(), PlanBuilder()
    x, other = first.tensor(SIZE), WEIGHTS[::-1].copy()
    weights = first.constant(other)
    good = first.plan([x], [first.call("aten::add.out", x, weights, first.int(1), first.tensor(SIZE))])
    second.constants = first.constants
    x, weights = second.tensor(SIZE), second.constant(WEIGHTS)
    bad = second.plan(
        [x], [second.call("aten::add.out", x, weights, second.int(1), second.tensor(SIZE))], name="second"
    )
    data = b"".join(sealed([serialize_program(first.program(good, bad))]))
    model = load(in_weights(data), kernels=[kernels])
    np.testing.assert_array_equal(model(X)[0], other)
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        model.second(X)


def test_initial_state_is_checked(build: PlanBuilder, kernels: Any) -> None:
    state, x = build.tensor(SIZE, initial=WEIGHTS, name="state"), build.tensor(SIZE)
    plan = build.plan([x], [build.call("aten::add.out", x, state, build.int(1), build.tensor(SIZE))])
    data = b"".join(sealed([serialize_program(build.program(plan))]))
    np.testing.assert_array_equal(load(data, kernels=[kernels])(X)[0], WEIGHTS)
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        load(in_weights(data), kernels=[kernels])(X)


class Adds(BackendInterface):
    """Adds its blob, and the data under "shared"."""

    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return [np.frombuffer(data, np.float32) for data in (processed, context.named_data["shared"])]

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        np.add(args[0], handle[0] + handle[1], args[1])


@pytest.mark.parametrize("part", [1, 2], ids=["blob", "named data"])
def test_data_of_delegates_are_checked(build: PlanBuilder, part: int) -> None:
    x, y = build.tensor(SIZE), build.tensor(SIZE)
    build.delegate("Adds", x, y, blob=WEIGHTS.tobytes())
    program = build.program(build.plan([x], [y]), named_data={"shared": NamedData((WEIGHTS * 2).tobytes())})
    data = b"".join(sealed([serialize_program(program)]))
    np.testing.assert_array_equal(load(data, backends={"Adds": Adds()})(X)[0], WEIGHTS * 3)
    damaged = flipped(data, 8 * data.index((WEIGHTS * part).tobytes()[8:]) + 8 * SIZE)
    with pytest.raises(InvalidProgram, match="the file is damaged"):
        load(damaged, backends={"Adds": Adds()})(X)


# ---- files cut, changed, and without a seal --------------------------------------------------------


def test_of_150_changed_bits_none_changes_numbers_in_silence(build: PlanBuilder, kernels: KernelLibrary) -> None:
    data = add_constant(build, size=3000)
    bits = random.Random(34).sample(range(8 * len(data)), 150)
    refused = 0
    for bit in bits:
        try:
            result = load(flipped(data, bit), kernels=[kernels], integrity="full")(X[:3000])[0]
        except DelegraphError:
            refused += 1
        else:
            np.testing.assert_array_equal(result, WEIGHTS[:3000], f"bit {bit}")
    assert refused >= 140


def test_a_file_that_was_cut(build: PlanBuilder, kernels: Any, source: Any) -> None:
    """Without its end it has no seal, and where a segment is cut, that is what is found."""
    data = add_constant(build)
    content_nbytes = len(serialize_program(build.program()))  # some place before the end of the segments
    for size in (20, content_nbytes, len(data) // 2):
        with pytest.raises(InvalidProgram, match=r"was (the file|it) truncated|not a \.pte|is damaged"):
            load(source(data[:size]), kernels=[kernels], integrity="full")


@pytest.mark.parametrize("integrity", ["full", "lazy", "none"])
def test_a_file_as_executorch_writes_it(build: PlanBuilder, kernels: Any, source: Any, integrity: Any) -> None:
    data = add_constant(build)
    plain = serialize_program(build.program(*Program.load(data).records.execution_plan))
    assert data.startswith(plain) and len(plain) < len(data)
    model = load(source(plain), kernels=[kernels], integrity=integrity)
    np.testing.assert_array_equal(model(X)[0], WEIGHTS)


# ---- external weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", SOURCES)
@pytest.mark.parametrize("integrity", ["full", "lazy"])
def test_external_weights(build: PlanBuilder, kernels: Any, tmp_path: Path, where: str, integrity: Any) -> None:
    pte, ptd = add_external(build)
    opened = SOURCES[where](in_weights(ptd), tmp_path)
    np.testing.assert_array_equal(load(pte, data_path=ptd, kernels=[kernels], integrity=integrity)(X)[0], WEIGHTS)
    with pytest.raises(InvalidExternalData, match=r"(the \.ptd|m\.pte): the file is damaged"):
        load(pte, data_path=opened, kernels=[kernels], integrity=integrity)(X)


def test_external_weights_of_records(build: PlanBuilder, kernels: Any) -> None:
    pte, ptd = add_external(build)
    with pytest.raises(InvalidExternalData, match=r"the \.ptd: the file is damaged"):
        load(Program.load(pte).records, data_path=in_weights(ptd), kernels=[kernels])(X)


def test_a_saved_state(build: PlanBuilder, kernels: Any, tmp_path: Path) -> None:
    state = build.tensor(SIZE, initial=WEIGHTS, name="state")
    model = load(build.program(build.plan([], [state])), kernels=[kernels])
    saved: State = model.state
    saved.save(tmp_path / "state.ptd")
    damaged = in_weights((tmp_path / "state.ptd").read_bytes())
    with pytest.raises(InvalidExternalData, match="the file is damaged"):
        model.state.load(damaged)


# ---- signatures ------------------------------------------------------------------------------------


@pytest.fixture
def signed(build: PlanBuilder, tmp_path: Path) -> Path:
    (tmp_path / "signed.pte").write_bytes(add_constant(build))
    sign_file(tmp_path / "signed.pte", PEM)
    return tmp_path / "signed.pte"


def test_a_signed_file_of_somebody_trusted(signed: Path, kernels: Any, source: Any) -> None:
    public = PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for key in (PUBLIC, public):
        model = load(source(signed.read_bytes()), kernels=[kernels], trusted_keys=[bytes(32), key])
        np.testing.assert_array_equal(model(X)[0], WEIGHTS)
    program = Runtime(kernels=[kernels]).load_program(source(signed.read_bytes()), trusted_keys=[PUBLIC])
    np.testing.assert_array_equal(program.load_method("forward").execute([X])[0], WEIGHTS)


def test_files_that_are_not_trusted(build: PlanBuilder, signed: Path, source: Any) -> None:
    for data, keys, error, told in (
        (add_constant(PlanBuilder()), [PUBLIC], UntrustedFile, "is not signed"),
        (serialize_program(build.program()), [PUBLIC], UntrustedFile, "is not signed"),
        (signed.read_bytes(), [bytes(32)], UntrustedFile, "is signed with the key"),
        (in_weights(signed.read_bytes()), [PUBLIC], InvalidProgram, "is damaged"),
    ):
        with pytest.raises(error, match=told):
            Program.load(source(data), trusted_keys=keys)


def test_a_file_that_was_changed_and_sealed_anew(signed: Path, source: Any) -> None:
    """As somebody would who knows the format: the checksums fit, the signature does not."""
    data = signed.read_bytes()
    content_nbytes = int.from_bytes(data[-28:-20], "little")
    changed = in_weights(data)[:content_nbytes]
    table = b"".join(sealed([changed]))[content_nbytes:-28]
    signature = data[content_nbytes + len(table) : -28]
    body = table + signature + data[-28:-12]
    forged = changed + body + crc32(body).to_bytes(4, "little") + data[-8:]
    load_only = Program.load(source(forged), integrity="full")
    assert load_only.method_names == {"forward"}
    with pytest.raises(UntrustedFile, match="was changed after it was signed"):
        Program.load(source(forged), trusted_keys=[PUBLIC])


def test_external_weights_have_to_be_signed_too(build: PlanBuilder, kernels: Any, tmp_path: Path) -> None:
    for name, data in zip(("m.pte", "m.ptd"), add_external(build), strict=True):
        (tmp_path / name).write_bytes(data)
    files = tmp_path / "m.pte", tmp_path / "m.ptd"
    sign_file(files[0], PEM)
    with pytest.raises(UntrustedFile, match=r"m\.ptd: the file is not signed"):
        load(files[0], data_path=files[1], kernels=[kernels], trusted_keys=[PUBLIC])
    sign_file(files[1], PEM)
    model = load(files[0], data_path=files[1], kernels=[kernels], trusted_keys=[PUBLIC])
    np.testing.assert_array_equal(model(X)[0], WEIGHTS)


def test_a_program_that_is_sent_on_is_checked_there_again(signed: Path) -> None:
    program = Program.load(signed, trusted_keys=[PUBLIC], environment=Environment())
    sent = pickle.dumps(program)
    assert pickle.loads(sent).method_names == {"forward"}
    signed.write_bytes(serialize_program(program.records))
    with pytest.raises(UntrustedFile, match="is not signed"):
        pickle.loads(sent)


class Flickers(MmapDataLoader):
    """Another file each time that it is read whole, as a server may give it that is not to be trusted."""

    changed = False

    def load(self, offset: int, size: int) -> Any:
        data = bytearray(super().load(offset, size))
        if self.changed and size > 4 * CHUNK_NBYTES:
            data[-SIZE] ^= 1
        self.changed |= size > 4 * CHUNK_NBYTES
        return bytes(data)


def test_what_is_run_is_what_was_checked(signed: Path, kernels: Any) -> None:
    model = load(Flickers(signed), kernels=[kernels], trusted_keys=[PUBLIC])
    np.testing.assert_array_equal(model(X)[0], WEIGHTS)


# ---- wrong use -------------------------------------------------------------------------------------


def test_wrong_arguments(build: PlanBuilder, signed: Path) -> None:
    for options, error, told in (
        ({"integrity": "some"}, InvalidArgument, "integrity='some'; it is one of 'full', 'lazy', 'none'"),
        ({"integrity": "none", "trusted_keys": [PUBLIC]}, InvalidArgument, 'integrity="none" with trusted_keys'),
        ({"trusted_keys": "public.pem"}, InvalidType, r"trusted_keys is 'public\.pem'; give a list, \['public\.pem'\]"),
        ({"trusted_keys": []}, InvalidArgument, "trusted_keys is empty"),
        ({"trusted_keys": ["missing.pem"]}, AccessFailed, r"missing\.pem: this key cannot be read"),
    ):
        with pytest.raises(error, match=told):
            Program.load(signed, **options)
    with pytest.raises(InvalidArgument, match="trusted_keys are given for records, which nobody can sign; load the"):
        Program.load(build.program(), trusted_keys=[PUBLIC])
