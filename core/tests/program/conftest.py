"""A program that has one of everything, and the way to ExecuTorch's own reader, writer and runtime."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flatbuffers
import pytest

from delegraph.program.files.header import ExtendedHeader, pack_head
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Bool,
    BoolList,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    DeviceType,
    Double,
    DoubleList,
    ExecutionPlan,
    ExtraTensorInfo,
    Frame,
    FreeCall,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    NonConstBufferDevice,
    Null,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    String,
    Tensor,
    TensorDataLocation,
    TensorList,
    TensorShapeDynamism,
)

if TYPE_CHECKING:
    from core.tests.program.flatc import program_generated

ROOT = Path(__file__).parents[3]


def _forward() -> ExecutionPlan:
    planned = AllocationDetails(1, 0)
    external = ExtraTensorInfo(fully_qualified_name="lm.weight", location=TensorDataLocation.EXTERNAL)
    on_device = ExtraTensorInfo(device_type=DeviceType.CUDA, device_index=1)
    values = (
        Tensor(ScalarType.FLOAT, (2, 3), (0, 1), allocation_info=planned),
        Tensor(ScalarType.FLOAT, (2, 3), (1, 0), data_buffer_idx=1),
        Int(-(2**63)),
        Double(-0.0),
        Null(),
        Bool(True),
        String("pf\u00e4d"),
        IntList((2, 15, 2)),
        DoubleList((1.5, float("inf"))),
        BoolList((True, False)),
        TensorList((0, 1)),
        OptionalTensorList((0, -1)),
        Tensor(ScalarType.BFLOAT16, (4, 2), (0, 1), 0, AllocationDetails(1, 2**33), TensorShapeDynamism.DYNAMIC_BOUND),
        Tensor(ScalarType.LONG, (), (), 1, AllocationDetails(2, 8), requires_grad=True, extra_tensor_info=on_device),
        Tensor(ScalarType.INT, (5,), (0,), extra_tensor_info=external),
        Int(2**63 - 1),
        Tensor(ScalarType.BYTE, (0, 7), (0, 1)),
    )
    instructions = (
        KernelCall(0, (0, 1, 2, 12, 12)),
        DelegateCall(0, (0, 12)),
        MoveCall(0, 12),
        JumpFalseCall(5, 5),
        FreeCall(0),
    )
    frame = Frame("model.py", 12, "forward", "return self.l(x)")
    return ExecutionPlan(
        name="forward",
        values=values,
        inputs=(0,),
        outputs=(12, 5),
        chains=(Chain(instructions, (0,), (12,), ((frame,), (), (frame, frame), (), ())), Chain(())),
        operators=(Operator("aten::add", "out"), Operator("aten::copy_")),
        delegates=(
            BackendDelegate("Npu", 0, (CompileSpec("target", b"\x00v2"), CompileSpec("", b""))),
            BackendDelegate("Dsp", 1),
            BackendDelegate("Npu", 0),
        ),
        non_const_buffer_sizes=(0, 2**34, 16),
        container_meta_type=ContainerMetadata("[1, null]", "[1, {}]"),
        non_const_buffer_device=(NonConstBufferDevice(2, DeviceType.CUDA, 1),),
    )


def _constant_method() -> ExecutionPlan:
    return ExecutionPlan("get_n", (Int(7),), (), (0,), (Chain(()),), non_const_buffer_sizes=(0,))


@pytest.fixture(scope="session")
def sample() -> Program:
    """One of every record, two methods, every kind of data."""
    return Program(
        execution_plan=(_forward(), _constant_method()),
        constants=(b"", bytes(range(24)), b"x"),
        mutable_data=(b"", bytes(8)),
        delegate_data=(b"blob", b""),
        named_data={"empty": NamedData(b""), "k": NamedData(b"named"), "same": NamedData(b"named")},
    )


@pytest.fixture(scope="session")
def flatc_program() -> Callable[[bytes], program_generated.ProgramT]:
    """The tables of a `.pte` as flatc's classes read them: objects whose fields can be set to anything."""
    from core.tests.program.flatc import program_generated

    def read(data: bytes) -> program_generated.ProgramT:
        assert program_generated.Program.ProgramBufferHasIdentifier(data, 0)
        return program_generated.ProgramT.InitFromPackedBuf(data)

    return read


@pytest.fixture(scope="session")
def flatc_bytes() -> Callable[..., bytes]:
    """The `.pte` that flatc's builder makes of such objects: an extended header inserted, `tail` for segments."""

    def write(program: program_generated.ProgramT, tail: bytes = b"") -> bytes:
        builder = flatbuffers.Builder()
        builder.Finish(program.Pack(builder), file_identifier=b"ET12")
        plain = bytes(builder.Output())
        program_size = len(plain) + 32
        base = -(-program_size // 128) * 128
        head = bytearray(pack_head(ExtendedHeader(program_size, base, len(tail)), 16))
        struct.pack_into("<I", head, 0, struct.unpack_from("<I", plain)[0] + 32)
        return bytes(head) + plain[8:] + bytes(base - program_size) + tail

    return write


@pytest.fixture(scope="session")
def executorch(executorch_python: str) -> Callable[..., Any]:
    """Runs a command of `executorch_peer.py` where ExecuTorch is installed; what it prints last, from JSON."""

    def run(*arguments: str | Path) -> Any:
        peer = Path(__file__).with_name("executorch_peer.py")
        command = [executorch_python, str(peer), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
