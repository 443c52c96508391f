"""Blob -> a method of ExecuTorch's own runtime -> outputs in planned memory: the runtime half for its backends.

The blob is put into a program of one call (`wrapper.py`), which ExecuTorch loads when the first arguments are known: at
load where their places are fixed, else at the first call. Its tensors lie over our arrays. ExecuTorch's bindings
take torch's tensors, so this half needs torch, which the wheel `executorch` brings; importing this module does not.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Internal, NotSupported, RuntimeFault
from delegraph.interfaces import (
    Argument,
    Availability,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CompileSpec,
)
from delegraph.program import scalar_type
from delegraph_executorch.bridge.imports import BACKENDS, INSTALL
from delegraph_executorch.bridge.wrapper import Integer, Parameter, TensorParameter, wrapped

if TYPE_CHECKING:
    import torch

__all__ = ["ExecutorchBackend", "LoadedBlob"]


@dataclass(slots=True)
class _LoadedMethod:
    """A loaded method of ExecuTorch, the bytes that it lies in, and the tensors that it was last given."""

    data: bytes
    method: Any
    inputs: Sequence[torch.Tensor] | None = None

    def run(self, inputs: Sequence[torch.Tensor]) -> None:
        """Execute it. Its tensors lie over `inputs`, which it is told only where that changes."""
        if self.inputs is not inputs:
            self.method.set_inputs(inputs)
            self.inputs = inputs
        self.method.execute()


@dataclass(slots=True)
class LoadedBlob:
    """A delegate: its blob, and the methods that were made of it, by what their program depends on."""

    blob: Buffer
    specs: tuple[CompileSpec, ...]
    named_data: Mapping[str, Buffer]
    methods: dict[tuple[Parameter, ...], _LoadedMethod] = field(default_factory=dict)


class ExecutorchBackend(BackendInterface):
    """Runs the blobs of one backend of ExecuTorch.

    A handle is executed by one thread at a time, as everywhere. ExecuTorch keeps Python's interpreter lock while it
    runs, so handles take turns; its own thread pool is one for the process, of a thread for each core.
    """

    def __init__(self, backend_id: str) -> None:
        self.backend_id = backend_id

    def is_available(self) -> Availability:
        """Whether the wheel is installed and its runtime has this backend."""
        if importlib.util.find_spec("executorch") is None:
            return Availability(False, "ExecuTorch, whose runtime runs its blobs, is not installed", INSTALL)
        try:
            names = _bindings()._get_registered_backend_names()
        except Exception as error:
            return Availability(False, f"ExecuTorch's runtime cannot be loaded: {error}", INSTALL)
        if self.backend_id in names:
            return Availability(True)
        return Availability(
            False,
            f"ExecuTorch's runtime in this environment has {', '.join(sorted(names)) or 'no backend'}",
            f"run the file where ExecuTorch is built with {self.backend_id}: it is a .pte like any other",
        )

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> LoadedBlob:
        """Keep the blob: what ExecuTorch needs to load it depends on the arguments."""
        return LoadedBlob(processed, tuple(compile_specs), context.named_data)

    def execute(self, context: BackendExecutionContext, handle: LoadedBlob, args: Sequence[Argument]) -> None:
        """Run once. Raises the `RuntimeFault` of ExecuTorch's error code."""
        bounds = [context.upper_bound(arg) if isinstance(arg, np.ndarray) else None for arg in args]
        method, inputs = self._method(handle, args, bounds)
        with self._faults():
            method.run(inputs)
            sizes = iter(method.method.get_outputs())
        for arg, bound in zip(args, bounds, strict=True):
            if bound is not None:
                assert isinstance(arg, np.ndarray)
                context.resize(arg, tuple(next(sizes) for _ in bound))

    def bind(
        self, context: BackendExecutionContext, handle: LoadedBlob, args: Sequence[Argument]
    ) -> Callable[[], object] | None:
        """ExecuTorch's own call, its tensors over these arrays."""
        if not all(isinstance(arg, np.ndarray) for arg in args):
            return None
        method, inputs = self._method(handle, args, [None] * len(args))
        return partial(self._run, method, inputs)

    def destroy(self, handle: LoadedBlob) -> None:
        """Let go of ExecuTorch's methods."""
        handle.methods.clear()

    # ---- a method for the arguments at hand ------------------------------------------------------------

    def _method(
        self, handle: LoadedBlob, args: Sequence[Argument], bounds: Sequence[tuple[int, ...] | None]
    ) -> tuple[_LoadedMethod, list[torch.Tensor]]:
        """The method for such arguments, and the tensors that it takes for these."""
        parameters: list[Parameter] = []
        inputs: list[torch.Tensor] = []
        for arg, bound in zip(args, bounds, strict=True):
            parameters.append(self._parameter(arg, bound, inputs))
        key = tuple(parameters)
        if key not in handle.methods:
            handle.methods[key] = self._load(handle, key)
        return handle.methods[key], inputs

    def _parameter(self, arg: Argument, bound: tuple[int, ...] | None, inputs: list[torch.Tensor]) -> Parameter:
        """What the program depends on of `arg`; its tensor, if it comes as one, goes to `inputs`."""
        import torch

        if isinstance(arg, np.ndarray):
            tensor = _tensor_over(arg)
            inputs.append(tensor)
            shape = arg.shape if bound is None else bound
            return TensorParameter(scalar_type(arg.dtype), shape, self._dim_order(tensor), bound is not None)
        if isinstance(arg, int) and not isinstance(arg, bool):
            inputs.append(torch.tensor(arg, dtype=torch.int64))
            return Integer()
        if isinstance(arg, (bool, float, str)) or arg is None:
            return arg
        raise NotSupported(f"{self.backend_id}: an argument is a list, which ExecuTorch's bindings cannot hand over")

    def _dim_order(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The layouts that ExecuTorch's bindings know."""
        import torch

        if tensor.is_contiguous():
            return tuple(range(tensor.dim()))
        if tensor.dim() == _CHANNELS_LAST_DIMS and tensor.is_contiguous(memory_format=torch.channels_last):
            return (0, 2, 3, 1)
        raise NotSupported(
            f"{self.backend_id}: an argument of shape {list(tensor.shape)} has strides {list(tensor.stride())};"
            " ExecuTorch's bindings take contiguous and channels-last tensors"
        )

    def _load(self, handle: LoadedBlob, parameters: Sequence[Parameter]) -> _LoadedMethod:
        data = wrapped(self.backend_id, handle.blob, handle.specs, parameters, handle.named_data)
        with self._faults("cannot load a blob"):
            return _LoadedMethod(data, _bindings()._load_program_from_buffer(data).load_method("forward"))

    def _run(self, method: _LoadedMethod, inputs: Sequence[torch.Tensor]) -> None:
        try:
            method.run(inputs)
        except RuntimeError as error:
            raise self._fault("failed", error) from error

    # ---- errors ----------------------------------------------------------------------------------------

    @contextmanager
    def _faults(self, what: str = "failed") -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._fault(what, error) from error

    def _fault(self, what: str, error: RuntimeError) -> RuntimeFault:
        """The fault of the error code that the bindings put into their message."""
        code = _CODE.search(str(error))
        kind = _FAULTS.get(int(code[1], 16), Internal) if code else Internal
        return kind(f"ExecuTorch's {self.backend_id} {what}: {str(error).strip()}")


_CHANNELS_LAST_DIMS: Final = 4
_CODE: Final = re.compile(r"error:? (?:with error )?0x:?([0-9a-fA-F]+)")
_FAULTS: Final = {kind.code: kind for kind in RuntimeFault.__subclasses__()}


def _tensor_over(array: NDArray[Any]) -> torch.Tensor:
    """torch's tensor over the memory of `array`; over a copy where that must not be written, since a blob says itself
    which of its arguments it writes."""
    import torch

    if not array.flags.writeable:
        array = array.copy(order="K")
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.dtype.itemsize}")).view(getattr(torch, array.dtype.name))


def _bindings() -> Any:
    from executorch.extension.pybindings import portable_lib

    return portable_lib


def __getattr__(name: str) -> Any:
    """The objects behind the entry points, by backend id."""
    if name not in BACKENDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, ExecutorchBackend(name))
