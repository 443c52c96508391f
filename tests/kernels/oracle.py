"""The oracle of these tests: torch's own operators. `Oracle.check` runs an operator there and its kernel here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.kernels.libraries import REGISTRY
from torch.utils._pytree import tree_map_only

from delegraph.interfaces import BoundCall, Kernel
from delegraph.program.dtypes import numpy_dtype, scalar_type
from delegraph.program.schema import ScalarType

Array = NDArray[Any]

TORCH_DTYPES = {
    torch.uint8: ScalarType.BYTE,
    torch.int8: ScalarType.CHAR,
    torch.int16: ScalarType.SHORT,
    torch.int32: ScalarType.INT,
    torch.int64: ScalarType.LONG,
    torch.float16: ScalarType.HALF,
    torch.float32: ScalarType.FLOAT,
    torch.float64: ScalarType.DOUBLE,
    torch.complex64: ScalarType.COMPLEX64,
    torch.complex128: ScalarType.COMPLEX128,
    torch.bool: ScalarType.BOOL,
    torch.bfloat16: ScalarType.BFLOAT16,
    torch.uint16: ScalarType.UINT16,
    torch.uint32: ScalarType.UINT32,
    torch.uint64: ScalarType.UINT64,
    torch.float8_e5m2: ScalarType.FLOAT8E5M2,
    torch.float8_e4m3fn: ScalarType.FLOAT8E4M3FN,
    torch.float8_e5m2fnuz: ScalarType.FLOAT8E5M2FNUZ,
    torch.float8_e4m3fnuz: ScalarType.FLOAT8E4M3FNUZ,
}
HALVES = (torch.float16, torch.bfloat16)
FLOAT8 = (torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz)
_BITS = {torch.bfloat16: torch.int16} | dict.fromkeys(FLOAT8, torch.uint8)
"""Dtypes that torch does not hand to NumPy -> those of the same size that it does."""
_CODES_TO_TORCH = {code: dtype for dtype, code in TORCH_DTYPES.items()}


class Context:
    """A `BindContext` for one call; resized outputs are found by the array that was handed in."""

    def __init__(self, constant: bool = False) -> None:
        self.constant = constant
        self.resized: dict[int, Array] = {}

    def resize(self, out: Array, shape: Sequence[int]) -> Array:
        if out.shape == tuple(shape):
            return out
        self.resized[id(out)] = np.empty(tuple(shape), out.dtype)
        return self.resized[id(out)]

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        # NaN, or -1: whoever reads it before writing shows.
        return np.frombuffer(b"\xff" * (prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()

    workspace = allocate_temp

    def is_constant(self, array: Array) -> bool:
        return self.constant

    def result(self, out: Array) -> Array:
        return self.resized.get(id(out), out)


def to_numpy(tensor: torch.Tensor) -> Array:
    """A copy with the same strides, for any dtype."""
    dtype = numpy_dtype(TORCH_DTYPES[tensor.dtype])
    tensor = tensor.detach().resolve_conj().resolve_neg()
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype) if _dense(tensor) else tensor.clone()
    copy.copy_(tensor)
    if tensor.dtype in _BITS:
        return copy.view(_BITS[tensor.dtype]).numpy().view(dtype)
    return copy.numpy()


def to_torch(array: Array) -> torch.Tensor:
    dtype = _CODES_TO_TORCH[scalar_type(array.dtype)]
    if dtype in _BITS:
        bits = np.dtype(f"i{array.itemsize}" if array.itemsize > 1 else np.uint8)
        return torch.from_numpy(np.ascontiguousarray(array).view(bits).reshape(array.shape)).view(dtype)
    return torch.from_numpy(np.array(array))


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and not any(s == 0 for s in tensor.stride())


def strided(array: Array) -> Array:
    """A copy of `array` whose last dim has gaps and whose dims lie in reversed order."""
    gaps = np.zeros((*array.shape[::-1], 2), array.dtype)
    gaps[..., 0] = array.T
    return gaps[..., 0].T


def _torch_argument(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return int(TORCH_DTYPES[value])
    return value


def find_kernel(op: str) -> Kernel:
    kernel = REGISTRY.lookup(op, ())
    assert kernel is not None, f"no kernel for {op}"
    return kernel


def overload_of(op: str) -> torch._ops.OpOverload:
    namespace, name = op.split("::")
    base, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def schema_arguments(
    op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], list[str]]:
    """Every argument of the out overload in schema order but the outputs, and the outputs' names."""
    values, outs = [], []
    for position, argument in enumerate(op._schema.arguments):
        if argument.is_out:
            outs.append(argument.name)
        elif position < len(args):
            values.append(args[position])
        else:
            values.append(kwargs.get(argument.name, argument.default_value))
    return values, outs


def map_tensors(values: Any, function: Callable[[torch.Tensor], Array]) -> Any:
    if isinstance(values, torch.Tensor):
        return function(values)
    if isinstance(values, list | tuple):
        return [map_tensors(v, function) for v in values]
    return _torch_argument(values)


def tolerances(dtype: torch.dtype) -> dict[str, float]:
    """torch.testing's defaults: rtol, atol 1.3e-6, 1e-5 (float32), 1e-3, 1e-5 (float16), 1.6e-2, 1e-5 (bfloat16),
    1e-7, 1e-7 (float64), exact for integers and bool."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    return {"rtol": rtol, "atol": atol}


class Oracle:
    """Runs kernels as the runtime may, and compares."""

    modes = ("run", "bind", "constant", "strided")
    """Called; bound before the inputs hold anything; bound to constants; on memory in another order, with gaps."""

    context = Context

    def kernel(self, op: str, inputs: Sequence[Any], outs: Sequence[Any], mode: str) -> list[Any]:
        """Run `op` on NumPy `inputs` into `outs`; returns the outputs, resized."""
        kernel = find_kernel(op)
        context = self.context(mode == "constant")
        with np.errstate(all="ignore"):
            if mode == "run" or kernel.bind is None:
                kernel.function(context, *inputs, *outs)
            elif mode == "bind":
                late = [(a, a.copy()) for a in _arrays(inputs) if a.flags.writeable]
                for array, _ in late:
                    array.fill(0)
                call = kernel.bind(context, *inputs, *outs)
                for array, content in late:
                    np.copyto(array, content)
                assert call is not None
                call()
            else:
                call = kernel.bind(context, *inputs, *outs)
                assert call is not None
                call()
                call()
        return [[context.result(o) for o in out] if isinstance(out, list) else context.result(out) for out in outs]

    def bind(self, op: str, inputs: Sequence[Any], outs: Sequence[Any], constant: bool = False) -> BoundCall:
        """The bound call of `op` on these arrays; with `constant` they are all the program's constants."""
        kernel = find_kernel(op)
        assert kernel.bind is not None
        call = kernel.bind(self.context(constant), *inputs, *outs)
        assert call is not None
        return call

    def compare(
        self, op: str, args: Sequence[Any], kwargs: dict[str, Any], expected: Sequence[Any], mode: str, **tolerance: Any
    ) -> None:
        """Assert that the kernel gives `expected`: one tensor, or list of tensors, for each output of the schema."""
        for actual, wanted in self.results(op, args, kwargs, expected, mode):
            limits = tolerance or tolerances(wanted.dtype)
            torch.testing.assert_close(
                actual, wanted, equal_nan=True, **limits, msg=lambda m: f"{op} ({mode}) on {args}, {kwargs}:\n{m}"
            )

    def results(
        self, op: str, args: Sequence[Any], kwargs: dict[str, Any], expected: Sequence[Any], mode: str
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each tensor that the kernel gives, beside that of `expected`.

        The kernel's outputs have the shapes and dtypes of `expected`; an operator that works in place has its target.
        """
        values, names = schema_arguments(overload_of(op), args, kwargs)
        place = strided if mode == "strided" else np.array
        inputs = map_tensors(values, lambda t: place(to_numpy(t)) if mode == "strided" else to_numpy(t))
        outs = map_tensors(
            list(expected) if names else [],
            lambda t: place(np.zeros(tuple(t.shape), numpy_dtype(TORCH_DTYPES[t.dtype]))),
        )
        for out in _arrays(outs):
            out.fill(1)
        given = self.kernel(op, inputs, outs, mode) or inputs[: len(expected)]
        return [(to_torch(a), w) for a, w in zip(_flat(given), _flat(expected), strict=True)]

    def check(self, op: str, *args: Any, out_dtype: Any = None, **kwargs: Any) -> None:
        """Assert that the kernel does as torch's out overload does, in every mode.

        `out_dtype` is one dtype, or one for each output; by default that of the first tensor.
        """
        expected = self.torch_result(op, args, kwargs, out_dtype)
        for mode in self.modes:
            self.compare(op, args, kwargs, expected, mode)

    def assert_refused(
        self, op: str, inputs: Sequence[Any], outs: Sequence[Any], fault: type[Exception], message: str
    ) -> None:
        """The kernel raises exactly `fault`, whose text begins with the operator's name and holds `message`."""
        with pytest.raises(fault, match=re.escape(message)) as caught:
            self.kernel(op, inputs, outs, "run")
        assert type(caught.value) is fault
        assert str(caught.value).startswith(f"{op}: ")

    def torch_result(self, op: str, args: Sequence[Any], kwargs: dict[str, Any], out_dtype: Any) -> list[torch.Tensor]:
        """What torch's out overload writes: of halves what it gives in float32, rounded once."""
        values, names = schema_arguments(overload_of(op), args, kwargs)
        example = next((t for t in _flat(values) if isinstance(t, torch.Tensor)), torch.zeros(()))
        dtypes = out_dtype if isinstance(out_dtype, tuple) else (out_dtype or example.dtype,) * len(names)
        wide = [torch.float32 if dtype in HALVES else dtype for dtype in dtypes]
        outs = {name: torch.empty(0, dtype=dtype) for name, dtype in zip(names, wide, strict=True)}
        args = tree_map_only(torch.Tensor, lambda t: t.float() if t.dtype in HALVES else t.clone(), list(args))
        overload_of(op)(*args, **kwargs, **outs)
        return [out.to(dtype) for out, dtype in zip(outs.values(), dtypes, strict=True)]


def _flat(values: Any) -> list[Any]:
    return [leaf for v in values for leaf in _flat(v)] if isinstance(values, list | tuple) else [values]


def _arrays(values: Any) -> list[Array]:
    return [v for v in _flat(values) if isinstance(v, np.ndarray)]
