"""Methods with memory on a device: where it comes from, where it goes, and what a file must not say of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegraph.errors import (
    BackendMissing,
    Internal,
    InvalidArgument,
    InvalidProgram,
    MemoryAllocationFailed,
    NotSupported,
)
from delegraph.interfaces import Device, DeviceAllocator, DeviceMemoryBuffer, DeviceTensor
from delegraph.program.schema import (
    AllocationDetails,
    CompileSpec,
    DeviceType,
    ExecutionPlan,
    ExtraTensorInfo,
    NonConstBufferDevice,
    Program,
    ScalarType,
    Tensor,
)
from delegraph.runtime import BackendInterface, HierarchicalAllocator, MemoryManager, Method, Runtime

X = np.arange(6, dtype=np.float32).reshape(2, 3)
CUDA = Device.parse("cuda:0")
H2D, D2H = "et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out"


class Memory(DeviceAllocator):
    """A device that this process simulates: bytes in a list of one, which is not an array."""

    def __init__(self) -> None:
        self.live = 0

    def allocate(self, nbytes: int) -> Any:
        self.live += 1
        return [bytearray(nbytes)]

    def deallocate(self, memory: Any) -> None:
        self.live -= 1

    def copy_host_to_device(self, memory: Any, offset: int, source: Any) -> None:
        memory[0][offset : offset + source.nbytes] = source.tobytes()

    def copy_device_to_host(self, target: Any, memory: Any, offset: int) -> None:
        target[:] = np.frombuffer(memory[0], np.uint8, target.nbytes, offset)


class Doubler(BackendInterface):
    """Doubles what it is given, on whatever device."""

    def __init__(self, offer: Any = None) -> None:
        self.offer = Memory() if offer is None else offer

    def device_allocator(self, device: Device) -> Any:
        return self.offer(device) if callable(self.offer) else self.offer

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        return None

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        source, out = args
        doubled = (source.numpy() if isinstance(source, DeviceTensor) else source) * 2
        out.copy_from(doubled) if isinstance(out, DeviceTensor) else np.copyto(out, doubled)


def tensor(memory_id: int, offset: int, device: int | None = None, dtype: ScalarType = ScalarType.FLOAT) -> Tensor:
    """`X`'s shape at a place; `device` is the number of the CUDA device that it says it is on."""
    info = None if device is None else ExtraTensorInfo(device_type=DeviceType.CUDA, device_index=device)
    return Tensor(dtype, (2, 3), (0, 1), 0, AllocationDetails(memory_id, offset), extra_tensor_info=info)


def doubling(build: Any, **changes: Any) -> ExecutionPlan:
    """x -> device -> doubled -> CPU, memory 2 being on cuda:0 and memory 3 on cuda:1. `changes` name values."""
    values = {
        "x": tensor(1, 0),
        "on_device": tensor(2, 0, 0),
        "doubled": tensor(2, 64, 0),
        "result": tensor(1, 64),
    } | changes
    x, on_device, doubled, result = (build.value(value) for value in values.values())
    build.call(H2D, x, on_device)
    build.delegate("Doubler", on_device, doubled, specs=[CompileSpec("target_device", b"cuda:0")])
    build.call(D2H, doubled, result)
    devices = (NonConstBufferDevice(2, DeviceType.CUDA, 0), NonConstBufferDevice(3, DeviceType.CUDA, 1))
    plan: ExecutionPlan = build.plan([x], [result])
    return replace(plan, non_const_buffer_sizes=(0, 128, 128, 128), non_const_buffer_device=devices)


def load(build: Any, plan: ExecutionPlan, backend: Any = None, **options: Any) -> Method:
    backends = {"Doubler": Doubler() if backend is None else backend}
    program: Program = build.program(plan)
    return Runtime(backends=backends).load_program(program).load_method("forward", **options)


def only_cuda_0(plan: ExecutionPlan) -> ExecutionPlan:
    return replace(
        plan,
        non_const_buffer_sizes=plan.non_const_buffer_sizes[:3],
        non_const_buffer_device=(plan.non_const_buffer_device or ())[:1],
    )


def test_memory_comes_from_the_backend_and_goes_back(build: Any) -> None:
    backend = Doubler()
    method = load(build, only_cuda_0(doubling(build)), backend)
    assert backend.offer.live == 1
    assert np.array_equal(method.execute([X])[0], X * 2)
    del method
    gc.collect()
    assert backend.offer.live == 0


def test_plain_memory_of_the_callers_simulates_a_device(build: Any) -> None:
    memory = MemoryManager(HierarchicalAllocator.of_sizes([128, 128]))
    method = load(build, only_cuda_0(doubling(build)), memory_manager=memory)
    assert np.array_equal(method.execute([X])[0], X * 2)


def test_memory_of_a_device_that_the_caller_gives(build: Any) -> None:
    allocator = Memory()
    buffers = [bytearray(128), DeviceMemoryBuffer(CUDA, allocator, 128)]
    method = load(
        build,
        only_cuda_0(doubling(build)),
        Doubler(lambda device: None),
        memory_manager=MemoryManager(HierarchicalAllocator(buffers)),
    )
    assert np.array_equal(method.execute([X])[0], X * 2)
    small = [bytearray(128), DeviceMemoryBuffer(CUDA, allocator, 64)]
    with pytest.raises(MemoryAllocationFailed, match="memory_id 2 needs 128 bytes, given 64"):
        load(
            build,
            only_cuda_0(doubling(build)),
            memory_manager=MemoryManager(HierarchicalAllocator(small)),
        )


def test_initial_data_go_to_the_device(build: Any) -> None:
    build.mutable_data.append(X.tobytes())
    initial = replace(tensor(2, 64, 0), data_buffer_idx=1)
    value, result = build.value(initial), build.value(tensor(1, 0))
    build.call(D2H, value, result)
    build.delegates = []
    plan = build.plan([], [result])
    device = NonConstBufferDevice(2, DeviceType.CUDA, 0)
    plan = replace(plan, non_const_buffer_sizes=(0, 128, 128), non_const_buffer_device=(device,))
    memory = MemoryManager(HierarchicalAllocator([bytearray(128), DeviceMemoryBuffer(CUDA, Memory(), 128)]))
    assert np.array_equal(load(build, plan, memory_manager=memory).execute([])[0], X)


# ---- devices that are not there --------------------------------------------------------------------


def test_a_device_that_no_backend_offers(build: Any) -> None:
    with pytest.raises(NotSupported) as caught:
        load(build, only_cuda_0(doubling(build)), Doubler(lambda device: None))
    assert str(caught.value).startswith(
        "method 'forward' has tensors in the memory of cuda:0, and none of the backends of its delegates there offers"
        " that memory (asked: 'Doubler')"
    )
    assert "enable_non_cpu_memory_planning=False" in str(caught.value)


def test_a_device_without_delegates(build: Any) -> None:
    with pytest.raises(NotSupported, match=r"in the memory of cuda:1, .* \(asked: no delegate runs there\)"):
        load(build, doubling(build))


def test_a_backend_that_is_missing_is_what_is_told(build: Any) -> None:
    program = build.program(only_cuda_0(doubling(build)))
    with pytest.raises(BackendMissing, match="backend 'Doubler' is not installed"):
        Runtime().load_program(program).load_method("forward")


def test_what_a_backend_offers_has_to_be_an_allocator(build: Any) -> None:
    with pytest.raises(Internal, match="backend 'Doubler': its device_allocator returned 'gpu' for cuda:0; it has to"):
        load(build, only_cuda_0(doubling(build)), Doubler("gpu"))


def test_two_backends_with_memories_of_their_own_on_one_device(build: Any) -> None:
    plan = only_cuda_0(doubling(build))
    twin = replace(plan.delegates[0], id="Other")
    program = build.program(replace(plan, delegates=(*plan.delegates, twin)))
    first, second = Doubler(), Doubler()
    with pytest.raises(NotSupported, match="'Doubler' and 'Other' each have an allocator of their own"):
        Runtime(backends={"Doubler": first, "Other": second}).load_program(program).load_method("forward")
    second.offer = first.offer
    method = Runtime(backends={"Doubler": first, "Other": second}).load_program(program).load_method("forward")
    assert np.array_equal(method.execute([X])[0], X * 2)


def test_memory_that_a_device_does_not_have(build: Any) -> None:
    class Full(Memory):
        def allocate(self, nbytes: int) -> Any:
            raise OSError("out of memory")

    with pytest.raises(MemoryAllocationFailed, match="cuda:0 did not give 128 bytes: OSError: out of memory"):
        load(build, only_cuda_0(doubling(build)), Doubler(Full()))


def test_a_copy_that_fails_says_where(build: Any) -> None:
    class Gone(Memory):
        def copy_device_to_host(self, target: Any, memory: Any, offset: int) -> None:
            raise OSError("the device is gone")

    backend = Doubler(Gone())
    backend.execute = lambda context, handle, args: None  # type: ignore[method-assign]
    method = load(build, only_cuda_0(doubling(build)), backend)
    with pytest.raises(Internal, match=r"instruction 2, et_copy::_d2h_copy.out\(float32\[2, 3\] on cuda:0, .*is gone"):
        method.execute([X])


# ---- files that say what cannot be -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"x": tensor(2, 0, 0)},
            "_h2d_copy.out copies from the CPU to a device, but value 0 lies on cuda:0",
        ),
        ({"on_device": tensor(1, 64)}, "but value 0 lies on cpu:0 and value 1 on cpu:0"),
        ({"result": tensor(2, 64, 0)}, "_d2h_copy.out copies from a device to the CPU, but value 2 lies on cuda:0 and"),
        ({"doubled": tensor(1, 64)}, "_d2h_copy.out copies from a device to the CPU, but value 2 lies on cpu:0"),
        ({"on_device": tensor(3, 0, 1)}, "delegate 0, which is for cuda:0, is given value 1, which lies on cuda:1"),
        (
            {"on_device": tensor(2, 0)},
            r"values\[1\].extra_tensor_info: the tensor is tagged as on cpu:0, its memory",
        ),
        ({"doubled": tensor(2, 64, 1)}, "the tensor is tagged as on cuda:1, its memory is on cuda:0"),
        ({"result": tensor(1, 64, dtype=ScalarType.INT)}, "_d2h_copy.out copies FLOAT to INT; it does not convert"),
    ],
    ids=["from a device", "to the CPU", "to a device", "from the CPU", "another device", "no tag", "tag", "dtype"],
)
def test_a_file_that_puts_tensors_where_they_cannot_be(build: Any, changes: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        load(build, doubling(build, **changes))


def test_a_copy_without_any_memory_on_a_device(build: Any) -> None:
    x, out = build.tensor(2), build.tensor(2)
    build.call(H2D, x, out)
    with pytest.raises(InvalidProgram, match="value 0 lies on cpu:0 and value 1 on cpu:0"):
        load(build, build.plan([x], [out]))


@pytest.mark.parametrize(
    "arguments", [lambda b, t: [t, t], lambda b, t: [t, t, b.tensor(2)], lambda b, t: [b.int(1), t, t]]
)
def test_a_copy_of_something_else(build: Any, arguments: Callable[..., list[int]]) -> None:
    build.prim(H2D, *arguments(build, build.tensor(2)))
    with pytest.raises(InvalidProgram, match=r"takes a tensor and the tensor to copy it to, got [23] values"):
        load(build, build.plan())


def test_a_kernel_is_given_no_tensor_of_a_device(build: Any) -> None:
    on_device = build.value(tensor(2, 0, 0))
    build.call("aten::relu.out", on_device, build.tensor(2, 3))
    plan = replace(
        build.plan(),
        non_const_buffer_sizes=(0, 128, 128),
        non_const_buffer_device=(NonConstBufferDevice(2, DeviceType.CUDA, 0),),
    )
    with pytest.raises(InvalidProgram, match="a call that runs on the CPU is given value 0, which lies on cuda:0"):
        load(build, plan)


def test_a_delegate_for_a_device_that_there_is_not(build: Any) -> None:
    plan = only_cuda_0(doubling(build))
    specs = (CompileSpec("target_device", b"tpu\xff"),)
    with pytest.raises(InvalidProgram, match=r"delegates\[0\].compile_specs: Unknown device type 'tpu"):
        load(build, replace(plan, delegates=(replace(plan.delegates[0], compile_specs=specs),)))


def test_tensors_tagged_in_the_memory_of_the_cpu_are_arrays(build: Any) -> None:
    """A file as ExecuTorch writes it with enable_non_cpu_memory_planning=False."""
    x, out = build.value(tensor(1, 0, 0)), build.value(tensor(1, 64, 0))
    build.delegate("Doubler", x, out, specs=[CompileSpec("target_device", b"cuda:0")])
    plan = replace(build.plan([x], [out]), non_const_buffer_sizes=(0, 128))
    assert np.array_equal(load(build, plan).execute([X])[0], X * 2)


# ---- tensors of a device ---------------------------------------------------------------------------


@pytest.mark.parametrize("array", [X, X.T, X[:, ::2], np.zeros((0, 3), np.int8), np.array(3.5)], ids=repr)
def test_a_tensor_has_the_content_that_it_was_given(array: Any) -> None:
    there = DeviceTensor.from_numpy(array, CUDA, Memory())
    assert np.array_equal(there.numpy(), array)
    assert np.array_equal(there.clone().numpy(), array)
    target = np.full(array.T.shape, 7, array.dtype).T
    there.copy_to(target)
    assert np.array_equal(target, array)
    assert repr(there) == f"DeviceTensor({array.dtype}{list(array.shape)} on cuda:0)"
    assert repr(there.buffer) == f"DeviceMemoryBuffer(cuda:0, {array.nbytes} bytes)"


def test_a_tensor_of_another_shape_or_dtype_is_refused() -> None:
    there = DeviceTensor.from_numpy(X, CUDA, Memory())
    with pytest.raises(InvalidArgument, match=r"float32\[3, 2\] cannot be copied to or from float32\[2, 3\] on cuda:0"):
        there.copy_from(X.T)
    with pytest.raises(InvalidArgument, match="float64"):
        there.copy_to(X.astype(np.float64))
