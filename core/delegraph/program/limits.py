"""Limits for a program from a stranger: instructions, time, memory. Safe defaults, which a caller can set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from delegraph.errors import InvalidArgument, LimitExceeded
from delegraph.lazy_dataclass import dataclass, fields
from delegraph.program.checks.verify_values import is_stored
from delegraph.program.dtypes import nbytes
from delegraph.program.schema import ExecutionPlan, Tensor, TensorShapeDynamism, Value
from delegraph.program.walk import tensor_indices

__all__ = ["DEFAULT_LIMITS", "HOUR", "Limits"]

HOUR: Final = 3600.0
"""Seconds. A run may take that long by default, which it looks at itself, at each jump back; shorter limits are watched
by a thread, which stops a run between any two instructions, and engines that can be stopped within one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The instructions, seconds and bytes that a method may use. None: no limit. Beyond it, `LimitExceeded` is raised.

    instructions: that one execution runs in loops (10 million: ExecuTorch's own limit); a program without loops runs
        each of its instructions once, however many there are.
    seconds: that one execution takes. Instructions themselves are not interrupted, but for delegates whose backend can
        (`BackendInterface.cancel`).
    planned_bytes: of planned memory, which the file asks for, unless the caller gives the memory.
    unplanned_bytes: of tensors without planned memory, all at their upper bounds; of those without one, as they grow.
    output_bytes: of the outputs, at their upper bounds, each counted once however often it is listed.
    state_bytes: of the buffers that its delegates keep from one run to the next, with those that its session shares.
    """

    instructions: int | None = 10_000_000
    seconds: float | None = HOUR
    planned_bytes: int | None = 2**34
    unplanned_bytes: int | None = 2**32
    output_bytes: int | None = 2**32
    state_bytes: int | None = 2**32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kinds = (int, float) if field.name == "seconds" else (int,)
            if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) or not value >= 0):
                raise InvalidArgument(f"Limits({field.name}={value!r}): a limit is a number from 0 on, or None")

    @property
    def watched(self) -> bool:
        """Whether a thread has to watch the time."""
        return self.seconds is not None and self.seconds < HOUR

    def require_planned(self, plan: ExecutionPlan) -> None:
        """Raise `LimitExceeded` if `plan` asks for more planned memory than it may have."""
        self._require("planned_bytes", plan.name, sum(plan.non_const_buffer_sizes), "planned memory")

    def require(self, plan: ExecutionPlan) -> None:
        """Raise `LimitExceeded` if tensors of `plan` without planned memory, or its outputs, may need too much."""
        self._require("unplanned_bytes", plan.name, _nbytes(_unplanned(plan)), "tensors without planned memory")
        outputs = tensor_indices(dict.fromkeys(plan.outputs), plan.values)
        self._require("output_bytes", plan.name, _nbytes(plan.values[index] for index in outputs), "outputs")

    def require_state(self, method: str, needed: int) -> None:
        """Raise `LimitExceeded` if the buffers that delegates of `method` keep may not have `needed` bytes in all."""
        self._require("state_bytes", method, needed, "buffers that its delegates keep")

    def left_for_unbounded(self, plan: ExecutionPlan) -> int | None:
        """How many bytes the tensors without an upper bound may have, beside the others without planned memory."""
        return None if self.unplanned_bytes is None else self.unplanned_bytes - _nbytes(_unplanned(plan))

    def _require(self, field: str, method: str, needed: int, what: str) -> None:
        allowed: int | None = getattr(self, field)
        if allowed is not None and needed > allowed:
            raise LimitExceeded(
                f"method {method!r} asks for {needed:,} bytes of {what}, and {allowed:,} are allowed;"
                f" if it may have them, load it with limits=Limits({field}={needed})"
            )


DEFAULT_LIMITS: Final = Limits()


def _unplanned(plan: ExecutionPlan) -> Iterator[Value]:
    """The tensors that the runtime gives memory of their own: neither planned, nor constants, nor the caller's."""
    inputs = set(plan.inputs)
    tensors = ((index, value) for index, value in enumerate(plan.values) if isinstance(value, Tensor))
    for index, tensor in tensors:
        if tensor.allocation_info is None and not is_stored(tensor) and index not in inputs:
            yield tensor


def _nbytes(tensors: Iterable[Value]) -> int:
    """Bytes at their upper bounds, of those that have one."""
    bounded = (tensor for tensor in tensors if isinstance(tensor, Tensor) and tensor.shape_dynamism is not _UNBOUNDED)
    return sum(nbytes(tensor.scalar_type, tensor.sizes) for tensor in bounded)


_UNBOUNDED: Final = TensorShapeDynamism.DYNAMIC_UNBOUND
