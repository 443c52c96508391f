"""Memory of a vendor's: what he or his users have on the device is used where it lies, and handed on without a copy."""

from __future__ import annotations

import ctypes
import gc
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from delegraph.errors import InvalidArgument, InvalidType, MemoryAllocationFailed, NotSupported
from delegraph.interfaces import Device, DeviceAllocator, DeviceMemoryBuffer, DeviceTensor, DmaBuf, ExternalTensor
from delegraph.interfaces.dlpack import read_dlpack
from delegraph.interfaces.external_memory import read_cuda_array_interface
from delegraph.program.schema import (
    AllocationDetails,
    CompileSpec,
    DeviceType,
    ExecutionPlan,
    ExtraTensorInfo,
    NonConstBufferDevice,
    ScalarType,
    Tensor,
)
from delegraph.runtime import BackendInterface, Method, Runtime

CUDA = Device.parse("cuda:0")
X = np.arange(6, dtype=np.float32).reshape(2, 3)
SOMEBODYS_OWN = 12  # DLPack's kDLExtDev


@dataclass
class Memory(DeviceAllocator):
    """A device whose memory is known by address; it counts what goes to and fro. The address is the CPU's here."""

    dlpack_device_type: int = SOMEBODYS_OWN  # type: ignore[misc]
    imports: bool = True
    fault: str = ""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("to", "from", "within", "imports"), 0))
    living: int = 0

    def allocate(self, nbytes: int) -> Any:
        return (ctypes.c_uint8 * nbytes)()

    def deallocate(self, memory: Any) -> None:
        pass

    def copy_host_to_device(self, memory: Any, offset: int, source: Any) -> None:
        self.counts["to"] += 1
        shown(memory)[offset : offset + source.nbytes] = source

    def copy_device_to_host(self, target: Any, memory: Any, offset: int) -> None:
        self.counts["from"] += 1
        target[:] = shown(memory)[offset : offset + target.nbytes]

    def copy_device_to_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        self.counts["within"] += 1
        shown(target)[target_offset : target_offset + nbytes] = shown(source)[source_offset : source_offset + nbytes]

    def import_memory(self, source: ExternalTensor | DmaBuf) -> Any:
        if self.fault:
            raise ValueError(self.fault)
        if not self.imports:
            return None
        self.counts["imports"] += 1
        self.living += 1
        if isinstance(source, DmaBuf):
            return source.map()
        return (ctypes.c_uint8 * source.nbytes).from_address(source.pointer)

    def release_memory(self, memory: Any) -> None:
        self.living -= 1

    def pointer(self, memory: Any) -> int | None:
        return ctypes.addressof(memory)


def shown(memory: Any) -> Any:
    array = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
    return array.reshape(-1).view(np.uint8)


@dataclass
class Doubler(BackendInterface):
    """Doubles what lies on its device."""

    memory: Memory = field(default_factory=Memory)
    addresses: list[int] = field(default_factory=list)

    def device_allocator(self, device: Device) -> DeviceAllocator:
        return self.memory

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        return None

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        source, out = (self.array(tensor) for tensor in args)
        self.addresses.append(source.ctypes.data)
        np.multiply(source, 2, out=out)

    def array(self, tensor: Any) -> Any:
        return np.ndarray(tensor.shape, tensor.dtype, shown(tensor.buffer.memory), tensor.offset, tensor.strides)


def tensor(place: int | None, dtype: ScalarType = ScalarType.FLOAT) -> Tensor:
    """Of `X`'s shape on the device, `place` bytes into its planned memory; None: without planned memory."""
    where = None if place is None else AllocationDetails(1, place)
    return Tensor(dtype, (2, 3), (0, 1), 0, where, extra_tensor_info=ExtraTensorInfo(device_type=DeviceType.CUDA))


def doubling(build: Any, source: int | None = None, result: int | None = 64, times: int = 1) -> ExecutionPlan:
    """x, doubled `times` times, each in a delegate: all of it on the device."""
    places = [source, *range(128, 128 + 64 * (times - 1), 64), result]
    values = [build.value(tensor(place)) for place in places]
    for before, after in pairwise(values):
        build.delegate("Doubler", before, after, specs=[CompileSpec("target_device", b"cuda:0")])
    plan: ExecutionPlan = build.plan([values[0]], [values[-1]])
    devices = (NonConstBufferDevice(1, DeviceType.CUDA, 0),)
    return replace(plan, non_const_buffer_sizes=(0, 512), non_const_buffer_device=devices)


def load(build: Any, plan: ExecutionPlan, backend: Doubler, **options: Any) -> Method:
    return Runtime(backends={"Doubler": backend}).load_program(build.program(plan)).load_method("forward", **options)


def theirs(array: Any = X, device: int = SOMEBODYS_OWN) -> DeviceTensor:
    """A tensor of another library on the same device."""
    return DeviceTensor.from_numpy(array, CUDA, Memory(device))


@pytest.fixture
def memfd() -> Iterator[int]:
    if not hasattr(os, "memfd_create"):
        pytest.skip("files without a name are Linux's")
    fd = os.memfd_create("frame")
    os.write(fd, bytes(64) + X.tobytes())
    yield fd
    os.close(fd)


# ---- inputs ----------------------------------------------------------------------------------------


def test_what_others_have_on_the_device_is_read_where_it_lies(build: Any) -> None:
    backend, x = Doubler(), theirs()
    method = load(build, doubling(build), backend)
    (result,) = method.execute([x])
    assert np.array_equal(result.numpy(), X * 2)
    assert backend.addresses == [ctypes.addressof(x.buffer.memory)]
    assert backend.memory.counts == {"to": 0, "from": 1, "within": 1, "imports": 1}  # `numpy`, and the caller's result


def test_the_owner_lives_as_long_as_the_call(build: Any) -> None:
    backend = Doubler()
    method = load(build, doubling(build), backend)
    x = theirs()
    buffer = weakref.ref(x.buffer)
    method.set_inputs([x])
    del x
    gc.collect()
    assert buffer() is not None and backend.memory.living == 1
    method.set_inputs([X])
    gc.collect()
    assert buffer() is None and backend.memory.living == 0
    method.execute([theirs()])
    gc.collect()
    assert backend.memory.living == 0


def test_an_input_with_planned_memory_is_copied_within_the_device(build: Any) -> None:
    backend = Doubler()
    (result,) = load(build, doubling(build, source=0), backend).execute([theirs()], clone_outputs=False)
    assert backend.memory.counts == {"to": 0, "from": 0, "within": 1, "imports": 1}
    assert np.array_equal(result.numpy(), X * 2)


def test_a_cuda_array_interface_is_read_where_it_lies(build: Any) -> None:
    class Array:
        """An array of Numba or PyCUDA."""

        def __init__(self) -> None:
            self.owner = theirs(device=2)
            self.__cuda_array_interface__ = self.owner.__cuda_array_interface__

    backend, x = Doubler(Memory(dlpack_device_type=2)), Array()
    (result,) = load(build, doubling(build), backend).execute([x])
    assert backend.addresses == [x.__cuda_array_interface__["data"][0]]
    assert np.array_equal(result.numpy(), X * 2)


def test_a_dma_buf_goes_to_the_device(build: Any, memfd: int) -> None:
    backend = Doubler()
    (result,) = load(build, doubling(build), backend).execute([DmaBuf(memfd, (2, 3), np.float32, 64)])
    assert np.array_equal(result.numpy(), X * 2)
    assert (backend.memory.counts["imports"], backend.memory.counts["to"], backend.memory.living) == (1, 0, 0)


def test_a_dma_buf_that_the_device_cannot_import_is_copied(build: Any, memfd: int) -> None:
    backend = Doubler(Memory(imports=False))
    (result,) = load(build, doubling(build), backend).execute([DmaBuf(memfd, (2, 3), "float32", 64)])
    assert np.array_equal(result.numpy(), X * 2) and backend.memory.counts["to"] == 1


@pytest.mark.parametrize(
    ("memory", "x", "message"),
    [
        (
            Memory(imports=False),
            lambda: Foreign(theirs()),
            r"input 0: the Foreign is on cuda:0, in memory that the backend d",
        ),
        (Memory(fault="no room"), theirs, r"cuda:0 did not import the caller's memory: ValueError: no room"),
        (Memory(), lambda: Foreign(spaced()), r"with gaps between its elements .*; give a dense tensor; or copy it to"),
        (Memory(), lambda: theirs(X[:, :2].copy()), r"expected float32\[2, 3\], got shape \[2, 2\]"),
        (Memory(), lambda: theirs(X.astype(np.int32)), r"expected float32\[2, 3\], got dtype int32"),
        (Memory(dlpack_device_type=2), lambda: Masked({"mask": 1}), r"numbers without a mask are"),
        (Memory(dlpack_device_type=2), lambda: Masked({"shape": (-1,)}), r"of a Masked is malformed: .*-1 is negative"),
    ],
    ids=["no import", "a fault", "gaps", "shape", "dtype", "mask", "malformed"],
)
def test_memory_that_cannot_be_used(build: Any, memory: Memory, x: Any, message: str) -> None:
    method = load(build, doubling(build), Doubler(memory))
    with pytest.raises((InvalidArgument, InvalidType), match=message):
        method.execute([x()])
    assert memory.living == 0


class Foreign:
    """A tensor of a library that knows DLPack alone."""

    def __init__(self, tensor: DeviceTensor) -> None:
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


class Masked:
    """A __cuda_array_interface__ with something in it that is not usual."""

    def __init__(self, further: dict[str, Any]) -> None:
        interface = {"version": 3, "data": (1 << 20, False), "shape": (2, 3), "typestr": "<f4", "strides": None}
        self.__cuda_array_interface__ = interface | further


def spaced() -> DeviceTensor:
    buffer = DeviceMemoryBuffer(CUDA, Memory(), 64)
    return DeviceTensor((2, 3), np.dtype(np.float32), buffer, 0, (32, 4))


# ---- outputs ---------------------------------------------------------------------------------------


def test_an_output_is_handed_on_without_the_cpu(build: Any) -> None:
    backend = Doubler()
    method = load(build, doubling(build, times=3), backend)
    (first,) = method.execute([theirs()])
    (second,) = method.execute([first])
    assert backend.memory.counts == {"to": 0, "from": 0, "within": 2, "imports": 1}
    assert np.array_equal(second.numpy(), X * 64)


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "uint8", "complex64", "float16"])
def test_others_import_a_tensor_where_it_lies(dtype: str, version: Any) -> None:
    x = theirs(X.astype(dtype))
    external = read_dlpack(Versioned(x, version))
    assert (external.pointer, external.shape, external.strides) == (
        ctypes.addressof(x.buffer.memory),
        x.shape,
        x.strides,
    )
    assert (external.dtype, external.device, external.read_only) == (x.dtype, (SOMEBODYS_OWN, 0), False)
    buffer = weakref.ref(x.buffer)
    del x
    gc.collect()
    assert buffer() is not None
    del external
    gc.collect()
    assert buffer() is None


class Versioned:
    """Asks a producer in the words of DLPack before and after 1.0."""

    def __init__(self, tensor: DeviceTensor, version: Any) -> None:
        self.tensor, self.version = tensor, version

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__() if self.version is None else self.tensor.__dlpack__(max_version=self.version)


def test_numpy_reads_a_device_whose_memory_is_the_cpus() -> None:
    x = theirs(device=1)
    array = np.from_dlpack(x)  # type: ignore[arg-type]
    assert array.ctypes.data == ctypes.addressof(x.buffer.memory) and np.array_equal(array, X)


def test_what_cannot_be_handed_over_is_refused() -> None:
    class Addressless(Memory):
        def pointer(self, memory: Any) -> None:
            return None

    x = DeviceTensor.from_numpy(X, CUDA, Addressless())
    with pytest.raises(BufferError, match=r"the allocator of cuda:0 tells no address of its memory; pass tensor.numpy"):
        x.__dlpack__()
    with pytest.raises(BufferError, match=r"the tensor lies on cuda:0, and is wanted on DLPack's device \(2, 1\)"):
        x.__dlpack__(dl_device=(2, 1))
    assert np.array_equal(np.from_dlpack(OnCpu(x)), X)  # type: ignore[arg-type]
    assert not hasattr(x, "__cuda_array_interface__")


class OnCpu:
    """Asks for a copy in the CPU's memory, as `numpy.from_dlpack(x, device="cpu")` does from NumPy 2.1 on."""

    def __init__(self, tensor: DeviceTensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(dl_device=(1, 0))


@pytest.mark.parametrize("value", [object(), np.zeros(2, "V3")], ids=["none", "elements"])
def test_what_has_no_dlpack(value: Any) -> None:
    with pytest.raises((InvalidType, InvalidArgument), match=r"has no __dlpack__|hands over nothing through DLPack"):
        read_dlpack(value)


def test_what_has_no_cuda_array_interface() -> None:
    with pytest.raises(InvalidType, match="a ndarray has no __cuda_array_interface__"):
        read_cuda_array_interface(X)


# ---- DMA-bufs on the CPU ---------------------------------------------------------------------------


def test_a_dma_buf_is_an_input_of_the_cpus(build: Any, memfd: int) -> None:
    plan, seen = on_the_cpu(build)
    method = load_host(build, plan, seen)
    assert np.array_equal(method.execute([DmaBuf(memfd, (2, 3), np.float32, 64)])[0], X * 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda fd: DmaBuf(fd, (2, 3), np.float32, 72), r"the tensor ends at byte 96, and the buffer has 88"),
        (lambda fd: DmaBuf(fd, (2, -3), np.float32), r"-3 is negative"),
        (lambda fd: DmaBuf(fd, (2, 3), object), r"elements of object have no bytes of their own"),
        (lambda fd: DmaBuf(fd, (2, 3), np.float32, strides=(4,)), r"1 strides for 2 dims"),
        (lambda fd: DmaBuf(10**6, (2, 3), np.float32), r"Bad file descriptor"),
    ],
    ids=["too short", "negative", "objects", "strides", "closed"],
)
def test_a_dma_buf_that_makes_no_sense(build: Any, memfd: int, make: Any, message: str) -> None:
    plan, seen = on_the_cpu(build)
    method = load_host(build, plan, seen)
    with pytest.raises(InvalidArgument, match=message):
        method.execute([make(memfd)])


# ---- memory of the CPU's that the engine can address -----------------------------------------------


@dataclass
class Pinned(BackendInterface):
    """Doubles in the memory that it gave."""

    gives: Any = None
    addresses: set[int] = field(default_factory=set)

    def host_memory(self, nbytes: int) -> Any:
        return self.gives(nbytes)

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        return None

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        self.addresses = {array.ctypes.data for array in args}
        np.multiply(args[0], 2, out=args[1])


def on_the_cpu(build: Any) -> tuple[ExecutionPlan, Pinned]:
    values = [build.value(Tensor(ScalarType.FLOAT, (2, 3), (0, 1), 0, AllocationDetails(1, at))) for at in (0, 64)]
    build.delegate("Doubler", *values)
    plan = replace(build.plan(values[:1], values[1:]), non_const_buffer_sizes=(0, 128))
    return plan, Pinned(lambda nbytes: None)


def load_host(build: Any, plan: ExecutionPlan, backend: BackendInterface) -> Method:
    return Runtime(backends={"Doubler": backend}).load_program(build.program(plan)).load_method("forward")


def test_planned_memory_is_the_engines(build: Any) -> None:
    plan, backend = on_the_cpu(build)
    block = np.full(256 + 64, 7, np.uint8)
    begin = -block.ctypes.data % 64
    backend.gives = lambda nbytes: block[begin : begin + nbytes]
    method = load_host(build, plan, backend)
    assert not block[begin : begin + 128].any() and block[begin + 128 :].all()
    assert np.array_equal(method.execute([X])[0], X * 2)
    assert backend.addresses == {block.ctypes.data + begin, block.ctypes.data + begin + 64}


def no_memory(nbytes: int) -> Any:
    raise OSError("the pool is empty")


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (no_memory, r"backend 'Doubler': host_memory\(128\) raised OSError: the pool is empty"),
        (lambda nbytes: bytearray(nbytes - 1), r"backend 'Doubler': host_memory\(128\) gave 127 bytes .*or None"),
        (bytes, r"backend 'Doubler': host_memory\(128\) raised .*read-only"),
    ],
    ids=["a fault", "too little", "read-only"],
)
def test_memory_that_a_backend_should_not_give(build: Any, gives: Any, message: str) -> None:
    plan, backend = on_the_cpu(build)
    backend.gives = gives
    with pytest.raises(MemoryAllocationFailed, match=message):
        load_host(build, plan, backend)


def test_two_allocators_for_an_input_without_planned_memory(build: Any) -> None:
    values = [build.value(tensor(None)), build.value(tensor(64)), build.value(tensor(128))]
    for before, after, name in ((0, 1, "Doubler"), (1, 2, "Other")):
        build.delegate(name, values[before], values[after], specs=[CompileSpec("target_device", b"cuda:0")])
    devices = (NonConstBufferDevice(1, DeviceType.CUDA, 0),)
    plan = build.plan(values[:1], values[2:])
    plan = replace(plan, non_const_buffer_sizes=(0, 512), non_const_buffer_device=devices)
    runtime = Runtime(backends={"Doubler": Doubler(), "Other": Doubler()})
    with pytest.raises(NotSupported, match="'Doubler' and 'Other' each have an allocator of their own"):
        runtime.load_program(build.program(plan)).load_method("forward")
