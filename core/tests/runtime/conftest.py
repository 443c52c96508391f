"""Programs built by hand, value by value, and a small kernel library to run them on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest

from delegraph.plugins.registry import PluginRegistry, use_registry
from delegraph.program.dtypes import numpy_dtype, scalar_type
from delegraph.program.schema import (
    AllocationDetails,
    BackendDelegate,
    Bool,
    Chain,
    CompileSpec,
    ContainerMetadata,
    DelegateCall,
    Double,
    ExecutionPlan,
    ExtraTensorInfo,
    Instruction,
    Int,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    NamedData,
    Operator,
    Program,
    Tensor,
    TensorDataLocation,
    TensorList,
    TensorShapeDynamism,
    Value,
)
from delegraph.runtime import BackendInterface, KernelLibrary, Method, Runtime


@dataclass
class PlanBuilder:
    """Values and instructions, one after the other; every planned tensor gets memory of its own unless told where."""

    values: list[Value] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    delegates: list[BackendDelegate] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=lambda: [b""])
    mutable_data: list[bytes] = field(default_factory=lambda: [b""])
    used: int = 0

    def value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def int(self, value: int) -> int:
        return self.value(Int(value))

    def bool(self, value: bool) -> int:
        return self.value(Bool(value))

    def double(self, value: float) -> int:
        return self.value(Double(value))

    def ints(self, *items: int) -> int:
        return self.value(IntList(items))

    def tensors(self, *items: int) -> int:
        return self.value(TensorList(items))

    def tensor(
        self,
        *sizes: int,
        dtype: str = "float32",
        dim_order: tuple[int, ...] | None = None,
        dynamic: bool = False,
        planned: bool = True,
        at: int | None = None,
        initial: np.ndarray[Any, Any] | None = None,
        name: str | None = None,
    ) -> int:
        """A planned tensor (at `at`, a byte offset, to alias another), or an unplanned one."""
        offset = self.used if at is None else at
        if planned and at is None:
            self.used += -(-prod(sizes) * numpy_dtype(scalar_type(dtype)).itemsize // 64) * 64
        data_index = 0
        if initial is not None:
            self.mutable_data.append(initial.tobytes())
            data_index = len(self.mutable_data) - 1
        return self.value(
            Tensor(
                scalar_type(dtype),
                sizes,
                dim_order or tuple(range(len(sizes))),
                data_index,
                AllocationDetails(1, offset) if planned else None,
                TensorShapeDynamism.DYNAMIC_BOUND if dynamic else TensorShapeDynamism.STATIC,
                extra_tensor_info=ExtraTensorInfo(fully_qualified_name=name) if name else None,
            )
        )

    def constant(self, array: Any, dim_order: tuple[int, ...] | None = None) -> int:
        array = np.asarray(array)
        order = dim_order or tuple(range(array.ndim))
        self.constants.append(array.transpose(order).tobytes())
        return self.value(Tensor(scalar_type(array.dtype), array.shape, order, len(self.constants) - 1))

    def external(self, name: str, *sizes: int, planned: bool = False) -> int:
        place = AllocationDetails(1, self.used) if planned else None
        self.used += 64 * planned
        info = ExtraTensorInfo(fully_qualified_name=name, location=TensorDataLocation.EXTERNAL)
        order = tuple(range(len(sizes)))
        return self.value(Tensor(scalar_type("float32"), sizes, order, 0, place, extra_tensor_info=info))

    def op(self, name: str) -> int:
        base, _, overload = name.partition(".")
        operator = Operator(base, overload)
        if operator not in self.operators:
            self.operators.append(operator)
        return self.operators.index(operator)

    def prim(self, name: str, *args: int) -> None:
        """A call of exactly these values."""
        self.instructions.append(KernelCall(self.op(name), args))

    def call(self, name: str, *args: int) -> int:
        """A call whose last argument is its out tensor, which is also its return slot. Returns that."""
        self.prim(name, *args, args[-1])
        return args[-1]

    def move(self, source: int, target: int) -> None:
        self.instructions.append(MoveCall(source, target))

    def jump_false(self, condition: int, destination: int) -> int:
        self.instructions.append(JumpFalseCall(condition, destination))
        return len(self.instructions) - 1

    def land(self, jump: int) -> None:
        """Let the jump at that index go to here."""
        record = self.instructions[jump]
        assert isinstance(record, JumpFalseCall)
        self.instructions[jump] = JumpFalseCall(record.cond_value_index, len(self.instructions))

    def delegate(self, backend: str, *args: int, blob: bytes = b"blob", specs: Sequence[CompileSpec] = ()) -> None:
        self.blobs.append(blob)
        self.delegates.append(BackendDelegate(backend, len(self.blobs) - 1, tuple(specs)))
        self.instructions.append(DelegateCall(len(self.delegates) - 1, args))

    def plan(
        self, inputs: Sequence[int] = (), outputs: Sequence[int] = (), *, name: str = "forward", trees: Any = ("", "")
    ) -> ExecutionPlan:
        return ExecutionPlan(
            name,
            tuple(self.values),
            tuple(inputs),
            tuple(outputs),
            (Chain(tuple(self.instructions)),),
            tuple(self.operators),
            tuple(self.delegates),
            (0, self.used),
            ContainerMetadata(*trees),
        )

    def program(self, *plans: ExecutionPlan, named_data: Mapping[str, NamedData] | None = None) -> Program:
        return Program(
            plans,
            tuple(self.constants),
            tuple(self.mutable_data) if len(self.mutable_data) > 1 else (),
            tuple(self.blobs),
            named_data or {},
        )


@pytest.fixture
def build() -> PlanBuilder:
    return PlanBuilder()


def numpy_kernels() -> KernelLibrary:
    library = KernelLibrary("numpy")

    @library.kernel("aten::add.out", bind=lambda context, a, b, alpha, out: partial(np.add, a, b, out))
    def add_out(context: Any, a: Any, b: Any, alpha: Any, out: Any) -> None:
        np.add(a, b, context.resize(out, np.broadcast_shapes(a.shape, b.shape)))

    @library.kernel("aten::mul.out")
    def mul_out(context: Any, a: Any, b: Any, out: Any) -> None:
        np.multiply(a, b, context.resize(out, np.broadcast_shapes(a.shape, b.shape)))

    @library.kernel("aten::copy_")
    def copy_(context: Any, self: Any, source: Any, non_blocking: bool) -> None:
        np.copyto(self, source)

    @library.kernel("test::max_and_place.out")
    def max_and_place(context: Any, a: Any, largest: Any, place: Any) -> None:
        largest[...], place[...] = a.max(), a.argmax()

    @library.kernel("aten::cat.out")
    def cat_out(context: Any, tensors: list[Any], dim: int, out: Any) -> None:
        result = np.concatenate(tensors, dim)
        np.copyto(context.resize(out, result.shape), result)

    @library.kernel("aten::select_copy.int_out")
    def select(context: Any, self: Any, dim: int, index: int, out: Any) -> None:
        result = self.take(index, dim)
        np.copyto(context.resize(out, result.shape), result)

    @library.kernel("aten::full.out")
    def full(context: Any, size: list[int], value: float, out: Any) -> None:
        context.resize(out, size)[...] = value

    @library.kernel("aten::split_copy.Tensor_out")
    def split(context: Any, self: Any, size: int, dim: int, outs: list[Any]) -> None:
        for out, part in zip(outs, np.split(self, len(outs), dim), strict=True):
            np.copyto(context.resize(out, part.shape), part)

    @library.kernel("test::fail.out")
    def fail(context: Any, self: Any, out: Any) -> None:
        raise self.item() and KeyError("told to fail")

    return library


@pytest.fixture
def kernels() -> KernelLibrary:
    return numpy_kernels()


@pytest.fixture(autouse=True)
def nothing_installed() -> Any:
    """No plug-ins: those installed on this machine do not matter to these tests."""
    with use_registry(PluginRegistry()) as registry:
        yield registry


LoadMethod = Callable[..., Method]


@pytest.fixture
def load_method(kernels: KernelLibrary) -> LoadMethod:
    """Load the only method of `plan`, with the numpy kernels."""

    def load(
        build: PlanBuilder,
        plan: ExecutionPlan,
        *,
        backends: Mapping[str, BackendInterface] | None = None,
        data_path: Any = None,
        **options: Any,
    ) -> Method:
        runtime = Runtime(kernels=[kernels], backends=backends)
        return runtime.load_program(build.program(plan), data_path=data_path).load_method(plan.name, **options)

    return load


@pytest.fixture
def ctrl_c() -> Callable[[], None]:
    """Interrupts the main thread, from another one."""
    return lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
